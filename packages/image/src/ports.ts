/** What this package needs of the outside: programs of the host, run by `@fluxvm/host`, and their paths. */
import type { Readable, Writable } from "node:stream";

export interface ToolCommand {
  /** A path or a name looked up in PATH. */
  readonly command: string;
  readonly args: readonly string[];
  /** The whole environment, nothing is inherited; default: a PATH and the C locale. */
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly cwd?: string | undefined;
}

export interface ToolExit {
  /** `null` when a signal ended it. */
  readonly exitCode: number | null;
  readonly signal: string | null;
}

/**
 * A program under way. It is killed, with all it started in its process group, when the signal it was spawned with
 * fires. A reader must consume `stdout` and `stderr`.
 */
export interface ToolProcess {
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Settles once the process ended and its outputs are closed. Never rejects. */
  readonly exited: Promise<ToolExit>;
}

export interface ToolRunner {
  /** @throws PlatformError `HOST_TOOL_MISSING` when there is no such program. */
  spawn(command: ToolCommand, options: { readonly signal: AbortSignal }): Promise<ToolProcess>;
}

/** Paths or names of the programs. */
export interface ToolPaths {
  readonly hostHelper: string;
  /** The agent that becomes `/init` of a kernel's initrd. */
  readonly guestAgent: string;
  readonly skopeo: string;
  readonly mmdebstrap: string;
  readonly mke2fs: string;
}

export interface ImageTools {
  readonly paths: ToolPaths;
  readonly runner: ToolRunner;
}

export interface ImageLimits {
  /** Bytes an image may unpack to; also the cap of a fetched disk. */
  readonly maxUnpackedBytes: number;
  readonly maxFiles: number;
  /** Deadline of one whole import. */
  readonly importTimeoutMs: number;
}

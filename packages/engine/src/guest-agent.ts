/**
 * The guest agent as engine and manager see it. `@fluxvm/guest-protocol` has the client; `fluxvmd` adapts it where
 * names differ. Method by method this is the API's guest operations for one VM.
 */
import type { CreateExecRequest, ExecExit, ExecView, FileEvent, FileStat } from "@fluxvm/contracts";
import type { CallOptions } from "@fluxvm/core";

/** `connecting`: never answered yet; `lost`: did, and is being dialled again. */
export type GuestAgentState = "connecting" | "ready" | "lost" | "closed";

export interface GuestAgent {
  readonly state: GuestAgentState;
  /** Of the agent in the guest, once it has answered. */
  readonly version: string | undefined;
  /** Called on each change of `state`; the result stops it. */
  subscribe(listener: (state: GuestAgentState) => void): () => void;
  /** Resolves when connected and authenticated. @throws `AGENT_UNREACHABLE` once closed, `AGENT_AUTH_FAILED`, `AGENT_PROTOCOL`. */
  waitReady(options: CallOptions): Promise<void>;
  ping(options: CallOptions): Promise<{ readonly rtt_ms: number; readonly version: string }>;
  setClock(request: { readonly wallMs: number }, options: CallOptions): Promise<void>;
  /** Asks for a power-off. Resolves when asked, not when done. */
  shutdown(options: CallOptions): Promise<void>;

  createExec(request: CreateExecRequest, options: CallOptions): Promise<ExecView>;
  listExecs(options: CallOptions): Promise<readonly ExecView[]>;
  getExec(execId: string, options: CallOptions): Promise<ExecView>;
  attachExec(execId: string, offsets: { readonly stdout: number; readonly stderr: number }, options: CallOptions): Promise<ExecStream>;
  signalExec(execId: string, signal: string, options: CallOptions): Promise<void>;
  removeExec(execId: string, options: CallOptions): Promise<void>;

  readFile(
    path: string,
    range: { readonly offset?: number | undefined; readonly length?: number | undefined },
    options: CallOptions,
  ): Promise<{ readonly stat: FileStat; readonly content: AsyncIterable<Uint8Array> }>;
  writeFile(path: string, content: AsyncIterable<Uint8Array>, attributes: FileAttributes, options: CallOptions): Promise<FileStat>;
  statFile(path: string, options: CallOptions): Promise<FileStat>;
  listFiles(path: string, options: CallOptions): Promise<readonly FileStat[]>;
  makeDirectory(
    path: string,
    request: { readonly parents: boolean; readonly mode?: number | undefined },
    options: CallOptions,
  ): Promise<void>;
  renameFile(from: string, to: string, options: CallOptions): Promise<void>;
  removeFile(path: string, request: { readonly recursive: boolean }, options: CallOptions): Promise<void>;
  watchFiles(path: string, options: CallOptions): AsyncIterable<FileEvent>;

  /** Stops dialling; pending calls fail with `AGENT_UNREACHABLE`. Execs in the guest go on. */
  close(): Promise<void>;
}

export interface FileAttributes {
  readonly mode?: number | undefined;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  readonly createParents?: boolean | undefined;
}

export type ExecStreamOutput =
  | { readonly kind: "data"; readonly stream: "stdout" | "stderr"; readonly offset: number; readonly data: Uint8Array }
  | { readonly kind: "stdin_ack"; readonly offset: number }
  | { readonly kind: "exit"; readonly exit: ExecExit; readonly stdoutBytes: number; readonly stderrBytes: number };

/** One consumer of an exec: see `ExecAttachment` of the API. */
export interface ExecStream {
  readonly stdinOffset: number;
  readonly output: AsyncIterable<ExecStreamOutput>;
  ack(offsets: { readonly stdout: number; readonly stderr: number }): void;
  writeStdin(offset: number, data: Uint8Array): Promise<void>;
  endStdin(offset: number): Promise<void>;
  resize(size: { readonly rows: number; readonly cols: number }): Promise<void>;
  signal(signal: string): Promise<void>;
  detach(): void;
}

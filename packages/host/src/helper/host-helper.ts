/** What the rest of the product may ask of the helper process. `startHostHelper` makes the real one. */
import type { CallOptions } from "@fluxvm/core";
import type { ProcessExit, ProcessIdentity, ProcessSpec, SignalName } from "../process/process-spec.ts";

export interface HostProcess {
  readonly identity: ProcessIdentity;
  /** Settles once, never rejects. */
  readonly exited: Promise<ProcessExit>;
  /** What the host could not do and was left out, for example `rlimits.memlock`. Empty for an adopted process. */
  readonly skipped: readonly string[];
  /** False when the process has ended. A recycled pid is never hit. */
  signal(name: SignalName, options: CallOptions): Promise<boolean>;
  /** SIGKILL, and waits for the end. */
  kill(options: CallOptions): Promise<ProcessExit>;
}

export interface ProcessLauncher {
  /**
   * Starts a process that outlives the daemon. Resolves when the program runs.
   * @throws PlatformError `HOST_TOOL_MISSING` (no such program), `HOST_TOOL_FAILED` (`details.step`, `details.errno`),
   * `REQUEST_INVALID`, `HOST_HELPER_UNAVAILABLE`. Nothing is left behind, except that after `HOST_HELPER_UNAVAILABLE`
   * a process may be in the spec's cgroups: kill those.
   */
  launchProcess(spec: ProcessSpec, options: CallOptions): Promise<HostProcess>;
  /** The process of an earlier daemon; `undefined` when it has ended. */
  adoptProcess(identity: ProcessIdentity, options: CallOptions): Promise<HostProcess | undefined>;
}

export interface CopyRequest {
  readonly source: string;
  /** Must not exist. Removed again when the copy fails. */
  readonly target: string;
  readonly mode: number;
}

export interface HostHelper extends ProcessLauncher {
  /** Kills every member and waits until there is none. Cgroups that do not exist are fine. */
  killCgroup(dir: string, options: CallOptions): Promise<void>;
  /** Copies data and keeps holes, and syncs; the number of data bytes. */
  sparseCopy(request: CopyRequest, options: CallOptions): Promise<number>;
  /** Shares blocks. @throws PlatformError `HOST_CAPABILITY_MISSING` where the file system cannot. */
  reflink(request: CopyRequest, options: CallOptions): Promise<void>;
  punchHole(request: { readonly path: string; readonly offset: number; readonly length: number }, options: CallOptions): Promise<void>;
  getXattr(path: string, name: string, options: CallOptions): Promise<Buffer | undefined>;
  setXattr(path: string, name: string, value: Uint8Array, options: CallOptions): Promise<void>;
  /** Tells the service manager, for example `READY=1`. `socket` is its NOTIFY_SOCKET; the unit needs `NotifyAccess=all`. */
  notifyServiceManager(socket: string, state: string, options: CallOptions): Promise<void>;
  /** A Unix socket whose connections are joined to the guest's port; lives until closed. */
  openVsockBridge(request: { readonly cid: number; readonly port: number; readonly path: string }, options: CallOptions): Promise<void>;
  closeVsockBridge(path: string, options: CallOptions): Promise<void>;
  /** Stops the helper. No process it launched is touched. */
  close(): Promise<void>;
}

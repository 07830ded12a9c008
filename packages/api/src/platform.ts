/**
 * What the REST API needs of the platform. The manager satisfies it, `fluxvmd` joins them, and the API's tests
 * implement it in memory. Every call throws `PlatformError` for what callers can act on.
 */
import type { CallOptions } from "@fluxvm/core";
import type {
  AgentExecRequest,
  AgentExecResult,
  CreateExecRequest,
  CreateImageRequest,
  CreateKernelRequest,
  CreateVmRequest,
  ExecExit,
  ExecView,
  FileEvent,
  FileStat,
  HostReport,
  ImageView,
  KernelView,
  PatchVmRequest,
  Readiness,
  StopVmRequest,
  Version,
  VmStateName,
  VmView,
} from "@fluxvm/contracts";

export interface Platform {
  readonly vms: VmOperations;
  readonly guests: GuestOperations;
  readonly images: ImageOperations;
  readonly kernels: KernelOperations;
  readonly host: HostOperations;
}

/** `reference` is an id or a name everywhere below. */
export interface VmOperations {
  /** Resolves when the VM runs, or with `ready: "exec"` when a first command has run in it. */
  create(request: CreateVmRequest, options: CallOptions & { readonly ready?: "exec" | undefined }): Promise<VmView>;
  /** `selector` follows `k=v,k2!=v,k3,!k4`. */
  list(query: {
    readonly name?: string | undefined;
    readonly selector?: string | undefined;
    readonly state?: VmStateName | undefined;
  }): Promise<readonly VmView[]>;
  get(reference: string): Promise<VmView>;
  patch(reference: string, request: PatchVmRequest, options: CallOptions): Promise<VmView>;
  start(reference: string, options: CallOptions & { readonly ready?: "exec" | undefined }): Promise<VmView>;
  /** Resolves when stopped. A VM already stopped is left as it is. */
  stop(reference: string, request: StopVmRequest, options: CallOptions): Promise<VmView>;
  restart(reference: string, request: StopVmRequest, options: CallOptions & { readonly ready?: "exec" | undefined }): Promise<VmView>;
  pause(reference: string, options: CallOptions): Promise<VmView>;
  resume(reference: string, options: CallOptions): Promise<VmView>;
  /** Kills it if it runs; resolves when nothing of it is left. */
  delete(reference: string, options: CallOptions): Promise<void>;
  /** Resolves when the VM is in one of `states`, "gone" meaning deleted. @throws `WAIT_TIMEOUT` */
  wait(
    reference: string,
    states: readonly (VmStateName | "ready" | "gone")[],
    options: CallOptions & { readonly timeoutMs: number },
  ): Promise<VmView | undefined>;
  /** Console output: the last `lines`, then what follows if asked. */
  logs(reference: string, query: { readonly lines: number; readonly follow: boolean }, options: CallOptions): AsyncIterable<Uint8Array>;
}

export type ExecOutput =
  | { readonly kind: "data"; readonly stream: "stdout" | "stderr"; readonly offset: number; readonly data: Uint8Array }
  | { readonly kind: "stdin_ack"; readonly offset: number }
  | { readonly kind: "exit"; readonly exit: ExecExit; readonly stdoutBytes: number; readonly stderrBytes: number };

/** One consumer of an exec. Output comes only as fast as it is taken and acknowledged (bounded in between). */
export interface ExecAttachment {
  readonly stdinOffset: number;
  readonly output: AsyncIterable<ExecOutput>;
  ack(offsets: { readonly stdout: number; readonly stderr: number }): void;
  /** Resolves when the guest has room for more. `offset` of the first byte; bytes it already has are dropped. */
  writeStdin(offset: number, data: Uint8Array): Promise<void>;
  endStdin(offset: number): Promise<void>;
  resize(size: { readonly rows: number; readonly cols: number }): Promise<void>;
  signal(signal: string): Promise<void>;
  /** Stops consuming; the exec goes on. */
  detach(): void;
}

export interface GuestOperations {
  ping(reference: string, options: CallOptions): Promise<{ readonly rtt_ms: number; readonly version: string }>;
  /** Runs to the end, output bounded. */
  run(reference: string, request: AgentExecRequest, options: CallOptions): Promise<AgentExecResult>;
  createExec(reference: string, request: CreateExecRequest, options: CallOptions): Promise<ExecView>;
  listExecs(reference: string, options: CallOptions): Promise<readonly ExecView[]>;
  getExec(reference: string, execId: string, options: CallOptions): Promise<ExecView>;
  attachExec(
    reference: string,
    execId: string,
    offsets: { readonly stdout: number; readonly stderr: number },
    options: CallOptions,
  ): Promise<ExecAttachment>;
  signalExec(reference: string, execId: string, signal: string, options: CallOptions): Promise<void>;
  /** Forgets an ended exec and its output; kills a running one. */
  removeExec(reference: string, execId: string, options: CallOptions): Promise<void>;

  readFile(
    reference: string,
    path: string,
    range: { readonly offset?: number | undefined; readonly length?: number | undefined },
    options: CallOptions,
  ): Promise<{ readonly stat: FileStat; readonly content: AsyncIterable<Uint8Array> }>;
  /** Atomic: the file has its new content or its old one. */
  writeFile(
    reference: string,
    path: string,
    content: AsyncIterable<Uint8Array>,
    attributes: {
      readonly mode?: number | undefined;
      readonly uid?: number | undefined;
      readonly gid?: number | undefined;
      readonly createParents?: boolean | undefined;
    },
    options: CallOptions,
  ): Promise<FileStat>;
  statFile(reference: string, path: string, options: CallOptions): Promise<FileStat>;
  listFiles(reference: string, path: string, options: CallOptions): Promise<readonly FileStat[]>;
  makeDirectory(
    reference: string,
    path: string,
    request: { readonly parents: boolean; readonly mode?: number | undefined },
    options: CallOptions,
  ): Promise<void>;
  renameFile(reference: string, from: string, to: string, options: CallOptions): Promise<void>;
  removeFile(reference: string, path: string, request: { readonly recursive: boolean }, options: CallOptions): Promise<void>;
  watchFiles(reference: string, path: string, options: CallOptions): AsyncIterable<FileEvent>;
}

export interface ImageOperations {
  /** Starts an import and resolves with its record at once; `get` shows progress. Importing the same source twice at a time is one import. */
  create(request: CreateImageRequest, options: CallOptions): Promise<ImageView>;
  list(): Promise<readonly ImageView[]>;
  get(reference: string): Promise<ImageView>;
  /** Resolves when the import ended, ready or failed. @throws `WAIT_TIMEOUT` */
  wait(reference: string, options: CallOptions & { readonly timeoutMs: number }): Promise<ImageView>;
  /** Cancels an import under way. @throws `IMAGE_IN_USE` */
  delete(reference: string, options: CallOptions): Promise<void>;
}

export interface KernelOperations {
  create(request: CreateKernelRequest, options: CallOptions): Promise<KernelView>;
  list(): Promise<readonly KernelView[]>;
  get(reference: string): Promise<KernelView>;
  wait(reference: string, options: CallOptions & { readonly timeoutMs: number }): Promise<KernelView>;
  delete(reference: string, options: CallOptions): Promise<void>;
}

export interface HostOperations {
  version(): Version;
  readiness(): Promise<Readiness>;
  report(options: CallOptions & { readonly refresh: boolean }): Promise<HostReport>;
}

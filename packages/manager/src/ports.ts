/** What the manager needs besides the engine's ports: whole services whose calls it forwards, and its configuration. */
import type { CreateImageRequest, CreateKernelRequest, HostReport, ImageView, KernelView, Readiness, Version } from "@fluxvm/contracts";
import type { CallOptions } from "@fluxvm/core";
import type { EnginePorts } from "@fluxvm/engine";
import type { MetricsRegistry } from "@fluxvm/telemetry";

/** Answers at once or later. */
export type MaybePromise<T> = T | Promise<T>;

/** `ImageService` of `@fluxvm/image` has this shape. */
export interface ImageService {
  create(request: CreateImageRequest, options: CallOptions): Promise<ImageView>;
  list(): MaybePromise<readonly ImageView[]>;
  /** By id, name or digest. @throws `IMAGE_NOT_FOUND` */
  get(reference: string): MaybePromise<ImageView>;
  /** @throws `WAIT_TIMEOUT` */
  wait(reference: string, options: CallOptions & { readonly timeoutMs: number }): Promise<ImageView>;
  /** @throws `IMAGE_IN_USE` while anybody holds a lease. */
  delete(reference: string, options: CallOptions): Promise<void>;
}

/** `KernelService` of `@fluxvm/image` has this shape. */
export interface KernelService {
  create(request: CreateKernelRequest, options: CallOptions): Promise<KernelView>;
  list(): MaybePromise<readonly KernelView[]>;
  get(reference: string): MaybePromise<KernelView>;
  wait(reference: string, options: CallOptions & { readonly timeoutMs: number }): Promise<KernelView>;
  delete(reference: string, options: CallOptions): Promise<void>;
}

export interface HostService {
  version(): Version;
  /** Checks of the host's side: state directory, helper, tools. The manager adds its own. */
  checks(): Promise<Readiness["checks"]>;
  report(options: CallOptions & { readonly refresh: boolean }): Promise<HostReport>;
}

/** Whose processes VMs run as. `shared`: rootless, everything is the caller's. */
export type VmUsers =
  | { readonly kind: "range"; readonly start: number; readonly count: number }
  | { readonly kind: "shared"; readonly uid: number; readonly gid: number };

/** The `[vm]` section in the units used here. */
export interface ManagerConfig {
  /** Preference order of `backend: auto`. */
  readonly backends: readonly string[];
  readonly accel: "auto" | "kvm" | "tcg";
  /** Least size of a root disk. */
  readonly diskBytes: number;
  readonly launchTimeoutMs: number;
  readonly stopTimeoutMs: number;
  readonly readyTimeoutMs: number;
  readonly consoleLogMaxBytes: number;
  readonly users: VmUsers;
  readonly maxVcpus: number;
  readonly maxMemoryMib: number;
  /** Launches under way at once; more wait. */
  readonly parallelLaunches: number;
}

export interface ManagerPorts extends Omit<EnginePorts, "config" | "launchSlots" | "observer"> {
  readonly images: ImageService;
  readonly kernels: KernelService;
  readonly hostService: HostService;
  readonly metrics: MetricsRegistry;
  readonly config: ManagerConfig;
}

/**
 * Everything the engine needs of the outside world. `fluxvmd` adapts the host, image, network and guest packages to
 * these; the simulation implements them in memory.
 *
 * Rules that every implementation keeps:
 * - `ensure` and `remove` are idempotent and may be cut off anywhere: a second call converges.
 * - A call settles soon after its signal fires. What it made by then is found by the matching `list`.
 * - What it makes on the host carries the instance id, so that two daemons never touch each other's things.
 */
import type { CloudInitSpec, ImageConfig } from "@fluxvm/contracts";
import type { CallOptions, Clock, Random } from "@fluxvm/core";
import type { Store, StoreChange } from "@fluxvm/store";
import type { Logger } from "@fluxvm/telemetry";
import type { AgentEndpoint, DiskPlan, VmBackend } from "@fluxvm/vmm";
import type { GuestAgent } from "./guest-agent.ts";
import type { GuestConfig } from "./guest-config.ts";
import type { Slots } from "./slots.ts";

/** The user and group a VM's process runs under and its files belong to. */
export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/** One directory per VM. Files in it are named by the engine: see `VM_FILES`. */
export interface Workspaces {
  /** Makes the directory if need be, mode 0700 and owned by `owner`. The path is absolute. */
  ensure(vmId: string, owner: Owner, options: CallOptions): Promise<{ readonly path: string }>;
  /** Removes it with everything in it; not being there is fine. */
  remove(vmId: string, options: CallOptions): Promise<void>;
  /** Ids of VMs that have one, also half-made. */
  list(options: CallOptions): Promise<readonly string[]>;
}

export const VM_FILES = {
  root: "root.qcow2",
  config: "config.img",
  seed: "seed.img",
  firmwareVars: "firmware-vars.fd",
  console: "console.log",
} as const;

/** An image a VM may use, as the image store knows it. */
export interface ImageInfo {
  readonly id: string;
  readonly name: string;
  readonly kind: "rootfs" | "disk";
  readonly format: "raw" | "qcow2";
  readonly virtualSizeBytes: number;
  readonly config?: ImageConfig | undefined;
}

export interface KernelInfo {
  readonly id: string;
  readonly name: string;
  /** Whether its initrd carries the guest agent. */
  readonly hasAgent: boolean;
}

/**
 * Images and kernels, with the leases that keep them from being deleted. A lease counts from the moment it is taken;
 * the changes that make it durable, or undo that, go into one commit with the VM's own record.
 */
export interface Artifacts {
  /** A ready image by id, name or digest. @throws `IMAGE_NOT_FOUND`, `IMAGE_NOT_READY` */
  findImage(reference: string, options: CallOptions): Promise<ImageInfo>;
  /** A ready kernel by id or name; `undefined` means the default one. @throws `KERNEL_NOT_FOUND`, `KERNEL_NOT_READY` */
  findKernel(reference: string | undefined, options: CallOptions): Promise<KernelInfo>;
  /** Where a kernel's files are, for a launch. @throws `KERNEL_NOT_FOUND` */
  locateKernel(kernelId: string, options: CallOptions): Promise<{ readonly kernelPath: string; readonly initrdPath?: string | undefined }>;
  /** @throws `IMAGE_NOT_FOUND`, `KERNEL_NOT_FOUND` when it went meanwhile; nothing is held then. */
  lease(holder: string, held: HeldArtifacts): readonly StoreChange[];
  /** Holding nothing is fine. */
  release(holder: string): readonly StoreChange[];
  /** Everybody who holds something, to find those that no longer exist. */
  holders(): readonly string[];
}

export interface HeldArtifacts {
  readonly imageId?: string | undefined;
  readonly kernelId?: string | undefined;
}

/** Disk files inside a workspace. Every file is replaced if it is there, and belongs to `owner`. */
export interface Disks {
  /** A copy-on-write overlay of the image (or a copy), `sizeBytes` large. @throws `DISK_SHRINK_REFUSED`, `HOST_OUT_OF_SPACE` */
  createRoot(
    request: { readonly imageId: string; readonly path: string; readonly sizeBytes: number; readonly owner: Owner },
    options: CallOptions,
  ): Promise<DiskPlan>;
  /** The small disk `fluxvm-config` the guest agent reads. */
  writeConfigDisk(
    request: { readonly path: string; readonly config: GuestConfig; readonly owner: Owner },
    options: CallOptions,
  ): Promise<DiskPlan>;
  /** A NoCloud seed, `fluxvm-seed`. */
  writeSeed(request: { readonly path: string; readonly seed: SeedSpec; readonly owner: Owner }, options: CallOptions): Promise<DiskPlan>;
  /** The VM's own copy of UEFI's variables, made once: unlike the others it is kept if it is there. */
  ensureFirmwareVars(request: { readonly path: string; readonly owner: Owner }, options: CallOptions): Promise<void>;
}

export interface SeedSpec {
  /** Same for the whole life of a VM, so that cloud-init does its once-only work once. */
  readonly instanceId: string;
  readonly hostname: string;
  readonly cloudInit: CloudInitSpec;
  /** `undefined`: no network device. */
  readonly mac?: string | undefined;
}

/** What guests in user mode may reach: rules by the VM's own user id. */
export interface Egress {
  ensure(
    rule: { readonly vmId: string; readonly uid: number; readonly allowCidrs: readonly string[] },
    options: CallOptions,
  ): Promise<void>;
  remove(rule: { readonly vmId: string; readonly uid: number }, options: CallOptions): Promise<void>;
  list(options: CallOptions): Promise<readonly { readonly vmId: string; readonly uid: number }[]>;
}

/** Dials guest agents. The agent connects in the background, and again whenever the connection breaks, until closed. */
export interface Guests {
  connect(target: { readonly vmId: string; readonly endpoint: AgentEndpoint; readonly token: string }): GuestAgent;
}

/** Serial consoles, as the backends log them. */
export interface ConsoleLogs {
  /** The last `lines` lines, bounded to 1 MiB. A VM that never printed has none. */
  tail(vmId: string, lines: number, options: CallOptions): Promise<Uint8Array>;
  /** The last `lines` lines and then whatever follows, across rotations, until the signal fires. */
  follow(vmId: string, lines: number, options: CallOptions): AsyncIterable<Uint8Array>;
}

/** This boot of the host, and the state directory's name. */
export interface HostIdentity {
  readonly instanceId: string;
  readonly bootId: string;
}

/** Told of each transition, for metrics. Must not throw. */
export interface VmObserver {
  transition(change: {
    readonly vmId: string;
    readonly from: string;
    readonly to: string;
    readonly reason: string;
    readonly durationMs: number;
  }): void;
}

export interface EngineConfig {
  readonly launchTimeoutMs: number;
  readonly stopTimeoutMs: number;
  readonly consoleLogMaxBytes: number;
}

export interface EnginePorts {
  /** Launches under way at once; shared by all VMs. */
  readonly launchSlots: Slots;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly store: Store;
  readonly backends: ReadonlyMap<string, VmBackend>;
  readonly workspaces: Workspaces;
  readonly artifacts: Artifacts;
  readonly disks: Disks;
  readonly egress: Egress;
  readonly guests: Guests;
  readonly consoles: ConsoleLogs;
  readonly host: HostIdentity;
  readonly observer: VmObserver;
  readonly config: EngineConfig;
}

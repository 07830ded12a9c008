/**
 * The boundary between the engine and the machine monitors: two small interfaces.
 *
 * The driver guarantees order and exclusivity, so a backend never checks state. What a backend cannot do it declares
 * in its capabilities and rejects with `BACKEND_UNSUPPORTED`; admission refuses it before anything is made.
 */
import type { CallOptions } from "@fluxvm/core";
import type { BackendCapabilities, BackendProbe } from "./capabilities.ts";
import type { LaunchPlan } from "./launch-plan.ts";

/** What adopt() needs after a daemon restart; JSON, stored before launch() resolves. */
export interface VmProcessRecord {
  readonly backend: string;
  /** The VMM process: pid alone can be reused, all four together cannot. */
  readonly pid: number;
  readonly startTimeTicks: number;
  readonly bootId: string;
  readonly pidNamespaceInode: number;
  readonly machine: string;
  readonly accelerator: "kvm" | "tcg";
  /** How to reach the guest agent; absent without one. */
  readonly agentEndpoint?: AgentEndpoint | undefined;
  /** The backend's own, for example the control socket's path. */
  readonly data: Readonly<Record<string, string | number>>;
}

export type AgentEndpoint =
  | { readonly kind: "unix"; readonly path: string }
  | { readonly kind: "connect"; readonly path: string; readonly port: number }
  | { readonly kind: "vsock"; readonly cid: number; readonly port: number };

/** Why a VM ended. `guest_shutdown`: it powered off; `guest_reset`: it rebooted where that ends it; `guest_panic`; `killed`: by us or anybody. */
export interface VmExit {
  readonly reason: "guest_shutdown" | "guest_reset" | "guest_panic" | "killed" | "crashed" | "unknown";
  readonly code?: number | undefined;
  readonly signal?: string | undefined;
  /** One sentence for people. */
  readonly message?: string | undefined;
}

export interface VmStats {
  readonly cpuTimeMs: number;
  readonly memoryBytes: number;
}

export interface VmProcess {
  readonly record: VmProcessRecord;
  /** Settles once, never rejects; also when the guest shut down and the VMM only waits to be told. The process is gone when it settles. */
  readonly exited: Promise<VmExit>;
  /** Lets a launched machine run its first instruction. */
  boot(options: CallOptions): Promise<void>;
  pause(options: CallOptions): Promise<void>;
  resume(options: CallOptions): Promise<void>;
  /** Whether vCPUs run: after adoption the driver learns the state from here. */
  status(options: CallOptions): Promise<"prelaunch" | "running" | "paused" | "ended">;
  snapshot(target: SnapshotTarget, options: CallOptions): Promise<void>;
  migrate(target: MigrationTarget, options: CallOptions): Promise<void>;
  update(change: VmChange, options: CallOptions): Promise<void>;
  stats(options: CallOptions): Promise<VmStats>;
  /** Asks the guest to power off (ACPI or the like). Resolves when asked, not when done. */
  requestShutdown(options: CallOptions): Promise<void>;
  /** Ends the process at once. Resolves when it is gone; idempotent. */
  kill(options: CallOptions): Promise<void>;
}

export interface SnapshotTarget {
  readonly directory: string;
}
export interface MigrationTarget {
  readonly uri: string;
}
export type VmChange = { readonly kind: "vcpus"; readonly count: number } | { readonly kind: "memory"; readonly memoryMib: number };

export interface VmBackend {
  readonly name: string;
  readonly capabilities: BackendCapabilities;
  /** Capabilities as data, or why this host cannot run it. */
  probe(options: CallOptions): Promise<BackendProbe>;
  /**
   * Starts the VMM with vCPUs stopped, so that the driver can store the record before the guest runs.
   * On failure nothing is left behind. @throws PlatformError `VM_LAUNCH_FAILED` with the VMM's last lines.
   */
  launch(plan: LaunchPlan, options: CallOptions): Promise<VmProcess>;
  /** Takes over a VMM left by an earlier daemon; `undefined` when that process is gone. */
  adopt(record: VmProcessRecord, options: CallOptions): Promise<VmProcess | undefined>;
  /** Identities of VMM processes of this instance found on the host, so that those without a record can be ended. */
  list(instanceId: string, options: CallOptions): Promise<readonly FoundVmProcess[]>;
  /** Ends a process `list` found and waits until it is gone. */
  destroyFound(found: FoundVmProcess, options: CallOptions): Promise<void>;
}

export interface FoundVmProcess {
  readonly vmId: string;
  readonly pid: number;
  readonly startTimeTicks: number;
}

/** From a record and what was made for it to the plan a backend gets. Pure. */
import { MIB } from "@fluxvm/core";
import type { BootPlan, DiskPlan, LaunchPlan, NetworkPlan, ResourceLimits } from "@fluxvm/vmm";
import { VM_FILES } from "./ports.ts";
import type { VmRecord, VmSpec } from "./vm-record.ts";

/** What a VMM needs besides the guest's memory: its own heap, and under emulation up to 1 GiB of translated code (QEMU's default). */
const VMM_OVERHEAD_BYTES = 1536 * MIB;
/** Threads of a VMM besides its vCPUs: QEMU's worker pool alone has 64. */
const VMM_THREADS = 256;

export interface LaunchInputs {
  readonly instanceId: string;
  readonly workspace: string;
  readonly disks: readonly DiskPlan[];
  readonly boot: BootPlan;
  readonly consoleLogMaxBytes: number;
}

export function computeLaunchPlan(record: VmRecord, inputs: LaunchInputs): LaunchPlan {
  const { spec } = record;
  return {
    vmId: record.id,
    instanceId: inputs.instanceId,
    name: record.name,
    workspace: inputs.workspace,
    uid: record.owner.uid,
    gid: record.owner.gid,
    accel: spec.accel,
    vcpus: spec.vcpus,
    memoryMib: spec.memoryMib,
    boot: inputs.boot,
    disks: inputs.disks,
    network: computeNetworkPlan(record),
    agent: spec.agent,
    console: { logPath: joinPath(inputs.workspace, VM_FILES.console), maxBytes: inputs.consoleLogMaxBytes },
    limits: computeLimits(spec),
  };
}

export function computeBootPlan(
  spec: VmSpec,
  files: { readonly kernelPath?: string | undefined; readonly initrdPath?: string | undefined; readonly varsPath?: string | undefined },
): BootPlan {
  const { boot } = spec;
  if (boot.kind === "firmware") return { kind: "firmware", firmware: boot.firmware, varsPath: files.varsPath };
  return { kind: "kernel", kernelPath: files.kernelPath ?? "", initrdPath: files.initrdPath, cmdline: boot.args };
}

function computeNetworkPlan(record: VmRecord): NetworkPlan {
  const { network } = record.spec;
  if (network.mode === "none" || record.mac === undefined) return { mode: "none" };
  const forwards = (network.forwards ?? []).map((f) => ({
    protocol: f.protocol ?? "tcp",
    hostAddress: f.host_address ?? "127.0.0.1",
    hostPort: f.host_port,
    guestPort: f.guest_port,
  }));
  return { mode: "user", mac: record.mac, forwards };
}

function computeLimits(spec: VmSpec): ResourceLimits {
  return { memoryMaxBytes: spec.memoryMib * MIB + VMM_OVERHEAD_BYTES, pidsMax: VMM_THREADS + spec.vcpus };
}

export function joinPath(directory: string, file: string): string {
  return `${directory}/${file}`;
}

/**
 * QEMU as a `VmBackend`: launches, adopts, lists and ends its processes. What a process is told to do afterwards is in
 * `machine.ts`, what its command line says in `plan.ts`.
 *
 * A launch holds, in this order, a cgroup, a process and a control connection, and releases them in reverse when any
 * step fails. Every process carries the instance's and the VM's id in its arguments (`marker.ts`).
 */
import { constants } from "node:fs";
import { access, rm } from "node:fs/promises";
import { isPlatformError, PlatformError, Scope, type CallOptions, type Clock } from "@fluxvm/core";
import type { HostProcess, ProcessIdentity, ProcessLauncher, VmCgroups } from "@fluxvm/host";
import type { Logger } from "@fluxvm/telemetry";
import type { BackendCapabilities, BackendProbe, FoundVmProcess, LaunchPlan, VmBackend, VmProcess, VmProcessRecord } from "@fluxvm/vmm";
import { parseQemuConfig, type QemuConfig, type QemuConfigInput } from "./config.ts";
import { QemuBinaryFinder, readTscKhz } from "./host-facts.ts";
import { describeEarlyEnd, readDiagnostics } from "./launch-failure.ts";
import { QemuMachine } from "./machine.ts";
import { MAX_VCPUS, planQemu, type QemuHost, type QemuPlan } from "./plan.ts";
import { listMarked, readPidNamespaceInode } from "./proc-scan.ts";

export const QEMU_BACKEND = "qemu";

export const QEMU_CAPABILITIES: BackendCapabilities = {
  accelerators: ["kvm", "tcg"],
  boot: ["kernel", "firmware"],
  firmware: ["uefi", "bios"],
  diskFormats: ["raw", "qcow2"],
  networkModes: ["none", "user"],
  agentTransports: ["virtio-serial"],
  pause: true,
  snapshot: false,
  migrate: false,
  hotplugCpu: false,
  hotplugMemory: false,
  maxVcpus: MAX_VCPUS,
};

export interface KvmVerdict {
  readonly usable: boolean;
  /** Why not. */
  readonly reason?: string | undefined;
}

export interface QemuBackendOptions {
  readonly config?: QemuConfigInput | undefined;
  readonly launcher: ProcessLauncher;
  /** Absent where the host lets the daemon make none: VMs then run in the daemon's own. */
  readonly cgroups?: Pick<VmCgroups, "ensureVmCgroup" | "removeVmCgroup" | "readUsage"> | undefined;
  /** The host probe's verdict, which has run a guest under KVM. */
  readonly kvmUsable: (options: CallOptions) => Promise<KvmVerdict>;
  readonly bootId: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

export interface QemuBackend extends VmBackend {
  /** Closes the control connections and leaves every VM running. The backend is not used afterwards. */
  detach(): void;
}

const CONNECT_RETRY_MS = 2;
const CONNECT_RETRY_MAX_MS = 20;
const CLEANUP_MS = 10_000;
/** From a broken control socket to the notice that the process has ended, at most. */
const END_NOTICED_MS = 500;
/** How long the writer of a console's log may take for what is still in its pipe. */
const LOG_DRAIN_MS = 2000;
const LOG_DRAIN_STEP_MS = 3;

export function createQemuBackend(options: QemuBackendOptions): QemuBackend {
  return new Backend(options);
}

class Backend implements QemuBackend {
  readonly name = QEMU_BACKEND;
  readonly capabilities = QEMU_CAPABILITIES;
  readonly #options: QemuBackendOptions;
  readonly #config: QemuConfig;
  readonly #binary: QemuBinaryFinder;
  readonly #machines = new Set<QemuMachine>();

  constructor(options: QemuBackendOptions) {
    this.#options = options;
    this.#config = parseQemuConfig(options.config);
    this.#binary = new QemuBinaryFinder(this.#config);
  }

  async probe(options: CallOptions): Promise<BackendProbe> {
    try {
      const { versionText } = await this.#binary.find(options);
      const kvm = await this.#options.kvmUsable(options);
      return { usable: true, version: versionText, accelerator: kvm.usable ? "kvm" : "tcg", ...(kvm.usable ? {} : { note: kvm.reason }) };
    } catch (error) {
      options.signal.throwIfAborted();
      if (!isPlatformError(error)) throw error;
      return { usable: false, reason: error.message, advice: "Install the package qemu-system-x86 (Debian) or set [tools] qemu" };
    }
  }

  async launch(plan: LaunchPlan, options: CallOptions): Promise<VmProcess> {
    options.signal.throwIfAborted();
    const qemu = planQemu(plan, await this.#describeHost(plan, options), this.#config);
    await requireFiles(plan, this.#config);
    const scope = new Scope();
    try {
      return await this.#start(plan, qemu, scope, options);
    } catch (error) {
      for (const failure of await scope.release()) {
        this.#options.logger.warn({ vmId: plan.vmId, step: failure.name, err: failure.error }, "cannot release after a failed launch");
      }
      throw error;
    }
  }

  async adopt(record: VmProcessRecord, options: CallOptions): Promise<VmProcess | undefined> {
    const { qmp, vmId } = record.data;
    if (record.backend !== QEMU_BACKEND || typeof qmp !== "string" || typeof vmId !== "string") {
      throw new PlatformError("REQUEST_INVALID", "Not a record of the qemu backend", { details: { record } });
    }
    const process = await this.#options.launcher.adoptProcess(identityOf(record), options);
    if (process === undefined) return undefined;
    const machine = this.#createMachine(record, process, { vmId, qmpPath: qmp });
    try {
      await machine.attach(options);
    } catch (error) {
      options.signal.throwIfAborted();
      this.#options.logger.warn({ vmId, err: error }, "adopted a vm whose control socket does not answer");
    }
    return machine;
  }

  async list(instanceId: string, options: CallOptions): Promise<readonly FoundVmProcess[]> {
    return await listMarked(instanceId, options);
  }

  async destroyFound(found: FoundVmProcess, options: CallOptions): Promise<void> {
    const identity = {
      pid: found.pid,
      startTimeTicks: found.startTimeTicks,
      bootId: this.#options.bootId,
      pidNamespaceInode: await readPidNamespaceInode(),
    };
    const process = await this.#options.launcher.adoptProcess(identity, options);
    await process?.kill(options);
    await this.#options.cgroups?.removeVmCgroup(found.vmId, options);
  }

  detach(): void {
    for (const machine of this.#machines) machine.detach();
    this.#machines.clear();
  }

  async #describeHost(plan: LaunchPlan, options: CallOptions): Promise<QemuHost> {
    const { path, version } = await this.#binary.find(options);
    const accelerator = await this.#chooseAccelerator(plan, options);
    const tscKhz = accelerator === "tcg" ? await this.#findTscKhz() : undefined;
    return { binary: path, version, accelerator, tscKhz };
  }

  async #findTscKhz(): Promise<number | undefined> {
    const { tscKhz } = this.#config;
    if (tscKhz === "unknown") return undefined;
    return tscKhz === "host" ? await readTscKhz() : tscKhz;
  }

  async #chooseAccelerator(plan: LaunchPlan, options: CallOptions): Promise<"kvm" | "tcg"> {
    if (plan.accel === "tcg") return "tcg";
    const kvm = await this.#options.kvmUsable(options);
    if (kvm.usable) return "kvm";
    if (plan.accel === "auto") return "tcg";
    throw new PlatformError("HOST_CAPABILITY_MISSING", `Cannot launch ${plan.vmId} with KVM: ${kvm.reason ?? "this host has none"}`);
  }

  async #start(plan: LaunchPlan, qemu: QemuPlan, scope: Scope, options: CallOptions): Promise<VmProcess> {
    const { cgroups } = this.#options;
    scope.add("files", async () => await removeFiles(qemu));
    scope.add("cgroup", async () => await cgroups?.removeVmCgroup(plan.vmId, cleanup()));
    const cgroup = await cgroups?.ensureVmCgroup(plan.vmId, plan.limits, options);
    const process = await this.#launchProcess(plan, qemu, cgroup?.dirs ?? [], options);
    scope.add("process", async () => void (await process.kill(cleanup())));
    const machine = this.#createMachine(computeRecord(plan, qemu, process), process, { vmId: plan.vmId, qmpPath: qemu.qmpPath });
    await this.#waitUntilReady(plan, qemu, { machine, process }, options);
    scope.commit();
    return machine;
  }

  async #launchProcess(plan: LaunchPlan, qemu: QemuPlan, cgroups: readonly string[], options: CallOptions): Promise<HostProcess> {
    try {
      return await this.#options.launcher.launchProcess({ ...qemu.process, cgroups }, options);
    } catch (error) {
      if (!isPlatformError(error, "HOST_TOOL_FAILED")) throw error;
      throw new PlatformError("VM_LAUNCH_FAILED", `Cannot launch ${plan.vmId}: ${error.message}`, { cause: error });
    }
  }

  /** Until the control socket answers. QEMU makes it early and serves it once everything else has been set up. */
  async #waitUntilReady(
    plan: LaunchPlan,
    qemu: QemuPlan,
    started: { readonly machine: QemuMachine; readonly process: HostProcess },
    options: CallOptions,
  ): Promise<void> {
    const { clock } = this.#options;
    const endMs = clock.bootMs() + this.#config.launchTimeoutMs;
    let ended = false;
    void started.process.exited.then(() => (ended = true)); // never rejects
    for (let waitMs = CONNECT_RETRY_MS; ; waitMs = Math.min(CONNECT_RETRY_MAX_MS, waitMs * 2)) {
      try {
        await started.machine.connectOnce(options);
        return;
      } catch (error) {
        options.signal.throwIfAborted();
        if (!isNotListening(error)) await Promise.race([clock.sleep(END_NOTICED_MS), started.process.exited]); // it may be about to end
        if (ended) throw await this.#earlyEnd(plan, qemu, started.process);
        if (!isNotListening(error) || clock.bootMs() > endMs) throw launchFailed(plan, error);
      }
      await Promise.race([clock.sleep(waitMs, { signal: options.signal }), started.process.exited]);
    }
  }

  async #earlyEnd(plan: LaunchPlan, qemu: QemuPlan, process: HostProcess): Promise<PlatformError> {
    const exit = await process.exited;
    return describeEarlyEnd(plan, exit, await readDiagnostics(qemu.diagnosticsPath, this.#options.clock));
  }

  /** The log's writer lives in the VM's cgroup and ends by itself once it has written everything. */
  async #drainLog(vmId: string): Promise<void> {
    const { cgroups, clock } = this.#options;
    const endMs = clock.bootMs() + LOG_DRAIN_MS;
    while (clock.bootMs() < endMs) {
      const usage = await cgroups?.readUsage(vmId, cleanup());
      if (usage?.pids === undefined || usage.pids === 0) return;
      await clock.sleep(LOG_DRAIN_STEP_MS);
    }
  }

  #createMachine(record: VmProcessRecord, process: HostProcess, where: { readonly vmId: string; readonly qmpPath: string }): QemuMachine {
    const { clock, logger, cgroups } = this.#options;
    const machine: QemuMachine = new QemuMachine({
      ...where,
      record,
      process,
      config: this.#config,
      clock,
      logger,
      release: async () => {
        this.#machines.delete(machine);
        await removeSockets(record);
        await this.#drainLog(where.vmId);
        await cgroups?.removeVmCgroup(where.vmId, cleanup());
      },
    });
    this.#machines.add(machine);
    return machine;
  }
}

/** Cleaning up must not be cut off by the caller's signal. */
function cleanup(): CallOptions {
  return { signal: AbortSignal.timeout(CLEANUP_MS) };
}

function identityOf(record: VmProcessRecord): ProcessIdentity {
  const { pid, startTimeTicks, bootId, pidNamespaceInode } = record;
  return { pid, startTimeTicks, bootId, pidNamespaceInode };
}

function computeRecord(plan: LaunchPlan, qemu: QemuPlan, process: HostProcess): VmProcessRecord {
  return {
    backend: QEMU_BACKEND,
    ...process.identity,
    machine: qemu.machine,
    accelerator: qemu.accelerator,
    ...(qemu.agentPath === undefined ? {} : { agentEndpoint: { kind: "unix" as const, path: qemu.agentPath } }),
    data: { vmId: plan.vmId, qmp: qemu.qmpPath },
  };
}

/** Says which file is missing before anything is made; QEMU itself would name a path. */
async function requireFiles(plan: LaunchPlan, config: QemuConfig): Promise<void> {
  const files: [string, string | undefined][] = [
    ["the VM's directory", plan.workspace],
    ...listBootFiles(plan, config),
    ...plan.disks.flatMap((disk): [string, string][] => [
      [`disk ${disk.serial}`, disk.path],
      ...disk.backing.map((file): [string, string] => [`a backing file of disk ${disk.serial}`, file.path]),
    ]),
  ];
  for (const [what, path] of files) {
    if (path === undefined) continue;
    try {
      await access(path, constants.R_OK);
    } catch (error) {
      const code = what === "the UEFI firmware" ? "HOST_TOOL_MISSING" : "VM_LAUNCH_FAILED";
      throw new PlatformError(code, `Cannot launch ${plan.vmId}: ${what} cannot be read`, { cause: error, details: { path } });
    }
  }
}

function listBootFiles({ boot }: LaunchPlan, config: QemuConfig): [string, string | undefined][] {
  if (boot.kind === "kernel") {
    return [
      ["the kernel", boot.kernelPath],
      ["the initrd", boot.initrdPath],
    ];
  }
  if (boot.firmware !== "uefi") return [];
  return [
    ["the UEFI firmware", config.ovmfCode],
    ["the firmware's variables", boot.varsPath],
  ];
}

function isNotListening(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException).code; // node:net rejects with these
  return code === "ENOENT" || code === "ECONNREFUSED";
}

function launchFailed(plan: LaunchPlan, error: unknown): PlatformError {
  const why = isPlatformError(error) ? error.message : "QEMU's control socket does not answer";
  return new PlatformError("VM_LAUNCH_FAILED", `Cannot launch ${plan.vmId}: ${why}`, { cause: error });
}

async function removeSockets(record: VmProcessRecord): Promise<void> {
  const paths = [record.data["qmp"], record.agentEndpoint?.kind === "unix" ? record.agentEndpoint.path : undefined];
  for (const path of paths) if (typeof path === "string") await rm(path, { force: true });
}

async function removeFiles(qemu: QemuPlan): Promise<void> {
  for (const path of [qemu.qmpPath, qemu.agentPath, qemu.diagnosticsPath]) if (path !== undefined) await rm(path, { force: true });
}

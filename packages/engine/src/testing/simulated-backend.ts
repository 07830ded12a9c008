/** A backend without machines: each is an entry in the simulated host's process table, and outlives the daemon. */
import type { Clock } from "@fluxvm/core";
import { PlatformError } from "@fluxvm/core";
import type { FoundVmProcess, LaunchPlan, VmBackend, VmExit, VmProcess, VmProcessRecord } from "@fluxvm/vmm";
import type { HostState, Incarnation } from "./simulated-world.ts";

/** One VMM process with its guest. `ended`: the guest is down and the VMM waits to be read, as with `-action shutdown=pause`. */
export class SimulatedMachine {
  readonly vmId: string;
  readonly instanceId: string;
  readonly plan: LaunchPlan;
  readonly pid: number;
  readonly startTimeTicks: number;
  status: "prelaunch" | "running" | "paused" | "ended" = "prelaunch";
  /** How it ended; the process may still be there to be read. */
  exit: VmExit | undefined;
  /** Counts first instructions: more than one would be a machine booted twice. */
  boots = 0;
  bootedAtMs: number | undefined;
  guestClockSetAtMs: number | undefined;
  readonly #host: HostState;
  readonly #clock: Clock;
  readonly #watchers = new Set<() => void>();

  constructor(plan: LaunchPlan, host: HostState, clock: Clock) {
    this.plan = plan;
    this.vmId = plan.vmId;
    this.instanceId = plan.instanceId;
    this.#host = host;
    this.#clock = clock;
    this.pid = host.nextPid;
    host.nextPid += 1;
    this.startTimeTicks = Math.round(clock.bootMs() / 10);
    host.machines.set(this.pid, this);
  }

  get isGone(): boolean {
    return this.#host.machines.get(this.pid) !== this;
  }

  boot(): void {
    this.status = "running";
    this.boots += 1;
    this.bootedAtMs = this.#clock.bootMs();
  }

  /** The guest does this by itself, or as asked. */
  endByGuest(exit: VmExit): void {
    if (this.isGone || this.exit !== undefined) return;
    this.exit = exit;
    this.status = "ended";
    this.#notify();
  }

  /** The process is there no more: killed, crashed, or the host rebooted. */
  vanish(exit: VmExit = { reason: "killed" }): void {
    if (this.isGone) return;
    this.exit ??= exit;
    this.status = "ended";
    this.#host.machines.delete(this.pid);
    this.#notify();
  }

  askToShutDown(): void {
    const { shutdownMs } = this.#host.guests;
    if (shutdownMs === "ignored" || this.status !== "running") return;
    this.#clock.schedule(shutdownMs, () => {
      if (this.status === "running") this.endByGuest({ reason: "guest_shutdown", message: "The guest powered off" });
    });
  }

  /** Called once when it has ended, at once if it has already. */
  onEnd(run: () => void): void {
    if (this.exit === undefined) this.#watchers.add(run);
    else run();
  }

  #notify(): void {
    for (const run of this.#watchers) run();
    this.#watchers.clear();
  }
}

export function createSimulatedBackend(name: string, host: HostState, clock: Clock, life: Incarnation): VmBackend {
  const handle = (machine: SimulatedMachine): VmProcess => createHandle(name, machine, host, life);
  return {
    name,
    capabilities: {
      accelerators: ["tcg"],
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
      maxVcpus: 64,
    },
    probe: async ({ signal }) =>
      await life.step("backend.probe", signal, () => ({ usable: true as const, version: "1", accelerator: "tcg" as const })),
    launch: async (plan, { signal }) =>
      await life.step("backend.launch", signal, () => {
        if (!host.workspaces.has(plan.vmId)) throw new PlatformError("VM_LAUNCH_FAILED", "no workspace");
        return handle(new SimulatedMachine(plan, host, clock));
      }),
    adopt: async (record, { signal }) =>
      await life.step("backend.adopt", signal, () => {
        const machine = host.machines.get(record.pid);
        const same = machine !== undefined && machine.startTimeTicks === record.startTimeTicks && record.bootId === host.bootId;
        return same ? handle(machine) : undefined;
      }),
    list: async (instanceId, { signal }) =>
      await life.step("backend.list", signal, () => [...host.machines.values()].filter((m) => m.instanceId === instanceId).map(toFound)),
    destroyFound: async (found, { signal }) =>
      await life.step("backend.destroyFound", signal, () => host.machines.get(found.pid)?.vanish()),
  };
}

function toFound(machine: SimulatedMachine): FoundVmProcess {
  return { vmId: machine.vmId, pid: machine.pid, startTimeTicks: machine.startTimeTicks };
}

function createHandle(backend: string, machine: SimulatedMachine, host: HostState, life: Incarnation): VmProcess {
  const record: VmProcessRecord = {
    backend,
    pid: machine.pid,
    startTimeTicks: machine.startTimeTicks,
    bootId: host.bootId,
    pidNamespaceInode: 1,
    machine: "sim",
    accelerator: "tcg",
    ...(machine.plan.agent ? { agentEndpoint: { kind: "unix" as const, path: `${machine.plan.workspace}/agent.sock` } } : {}),
    data: {},
  };
  const step = async (name: string, signal: AbortSignal, work: () => void): Promise<void> =>
    await life.step(`process.${name}`, signal, work);
  const requireAlive = (): void => {
    if (machine.isGone || machine.status === "ended") throw new PlatformError("BACKEND_PROTOCOL", "The simulated VMM is gone");
  };
  return {
    record,
    exited: watchExit(machine, life),
    boot: async ({ signal }) =>
      await step("boot", signal, () => {
        requireAlive();
        machine.boot();
      }),
    pause: async ({ signal }) =>
      await step("pause", signal, () => {
        requireAlive();
        machine.status = "paused";
      }),
    resume: async ({ signal }) =>
      await step("resume", signal, () => {
        requireAlive();
        machine.status = "running";
      }),
    status: async ({ signal }) => await life.step("process.status", signal, () => machine.status),
    snapshot: unsupported,
    migrate: unsupported,
    update: unsupported,
    stats: async ({ signal }) => await life.step("process.stats", signal, () => ({ cpuTimeMs: 0, memoryBytes: 0 })),
    requestShutdown: async ({ signal }) =>
      await step("requestShutdown", signal, () => {
        if (host.guests.powerButton !== "ignored") machine.askToShutDown();
      }),
    kill: async ({ signal }) => await step("kill", signal, () => machine.vanish()),
  };
}

/** The process is gone when it settles, so a VMM that waits to be read is told to end first. Only a living daemon does that. */
async function watchExit(machine: SimulatedMachine, life: Incarnation): Promise<VmExit> {
  return await new Promise<VmExit>((resolve) => {
    machine.onEnd(() => {
      setImmediate(() => {
        if (life.isDead) return;
        machine.vanish();
        resolve(machine.exit ?? { reason: "unknown" });
      });
    });
  });
}

async function unsupported(): Promise<never> {
  await Promise.resolve();
  throw new PlatformError("BACKEND_UNSUPPORTED", "The simulated backend cannot do that");
}

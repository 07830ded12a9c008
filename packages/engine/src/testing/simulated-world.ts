/**
 * A host in memory that outlives its daemons: disks and the store, processes, rules, directories and a clock.
 *
 *   world.incarnate({ faults }) -> the ports of one daemon's life
 *   incarnation.crash()         -> that life is over: its calls never settle, its timers never fire, its store is gone
 *   world.reboot()              -> every process is gone, the boot id is new, disks stay
 *
 * Deterministic: all time is the manual clock's, all randomness seeded. Every call of a port is a step that a
 * `FaultPlan` can make fail, hang or be the daemon's last.
 */
import { createSeededRandom, type Clock, type Random } from "@fluxvm/core";
import { ManualClock, settle } from "@fluxvm/core/testing";
import { createMemoryStore, type MemoryStore, type StoreSnapshot } from "@fluxvm/store/testing";
import { createNullLogger, type Logger } from "@fluxvm/telemetry";
import type { EngineConfig, EnginePorts, ImageInfo, KernelInfo, Owner, VmObserver } from "../ports.ts";
import { Slots } from "../slots.ts";
import { FaultPlan, makeFaultError, type FaultKind } from "./fault-plan.ts";
import { createSimulatedBackend, type SimulatedMachine } from "./simulated-backend.ts";
import { createSimulatedPorts } from "./simulated-host.ts";

export interface SimulatedWorldOptions {
  readonly seed?: number;
  readonly logger?: Logger;
  readonly images?: readonly ImageInfo[];
  readonly kernels?: readonly KernelInfo[];
  readonly config?: Partial<EngineConfig>;
  readonly parallelLaunches?: number;
}

/** What one VM has on the host's file systems. */
export interface SimulatedWorkspace {
  readonly owner: Owner;
  readonly files: Map<string, string>;
}

/** State of the host, shared by all daemons' lives. */
export interface HostState {
  readonly instanceId: string;
  bootId: string;
  readonly workspaces: Map<string, SimulatedWorkspace>;
  readonly egress: Map<string, { readonly vmId: string; readonly uid: number; readonly allowCidrs: readonly string[] }>;
  readonly machines: Map<number, SimulatedMachine>;
  nextPid: number;
  /** Behaviour of guests from now on. */
  guests: {
    readonly shutdownMs: number | "ignored";
    readonly agentReadyMs: number | "never";
    /** `ignored`: only the agent can end it. */
    readonly powerButton?: "ignored";
  };
}

export class Incarnation {
  readonly faults: FaultPlan;
  readonly ports: EnginePorts;
  readonly transitions: { readonly vmId: string; readonly from: string; readonly to: string; readonly reason: string }[] = [];
  readonly #store: MemoryStore;
  readonly #onCrash: (() => void)[] = [];
  #dead = false;

  constructor(world: SimulatedWorld, faults: FaultPlan, store: (life: Incarnation) => MemoryStore) {
    this.faults = faults;
    this.#store = store(this);
    this.ports = world.makePorts(this, this.#store);
  }

  get isDead(): boolean {
    return this.#dead;
  }

  get store(): MemoryStore {
    return this.#store;
  }

  /** From now on nothing of this daemon does or hears anything. */
  crash(): void {
    if (this.#dead) return;
    this.#dead = true;
    for (const run of this.#onCrash) run();
  }

  onCrash(run: () => void): void {
    this.#onCrash.push(run);
  }

  /**
   * One step: `work` takes effect all at once, some turns of the loop after the call, unless the plan says otherwise.
   * A call that has begun is not stopped by its signal: as with a real host, aborting only means not to wait longer.
   */
  async step<T>(name: string, signal: AbortSignal | undefined, work: () => T): Promise<T> {
    await Promise.resolve();
    if (this.#dead) return await never();
    signal?.throwIfAborted();
    for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    if (this.#dead) return await never();
    const fault = this.faults.next(name);
    const result = await this.#strike(fault, name, signal, work);
    await new Promise((resolve) => setImmediate(resolve));
    return this.#dead ? await never() : result;
  }

  async #strike<T>(fault: FaultKind | undefined, name: string, signal: AbortSignal | undefined, work: () => T): Promise<T> {
    switch (fault) {
      case undefined:
        return work();
      case "slow":
        await this.ports.clock.sleep(SLOW_STEP_MS);
        return work();
      case "fail":
        throw makeFaultError(name);
      case "fail_after":
        work();
        throw makeFaultError(name);
      case "hang":
        return await untilAborted(signal);
      case "crash_before":
        this.crash();
        return await never();
      case "crash_after":
        work();
        this.crash();
        return await never();
    }
  }
}

export class SimulatedWorld {
  readonly clock: ManualClock;
  readonly random: Random;
  readonly host: HostState;
  readonly images: Map<string, ImageInfo>;
  readonly kernels: Map<string, KernelInfo>;
  readonly #options: SimulatedWorldOptions;
  #durable: StoreSnapshot | undefined;
  #life: Incarnation | undefined;

  constructor(options: SimulatedWorldOptions = {}) {
    this.#options = options;
    this.clock = new ManualClock();
    this.random = createSeededRandom(options.seed ?? 1);
    this.images = new Map((options.images ?? DEFAULT_IMAGES).map((image) => [image.id, image]));
    this.kernels = new Map((options.kernels ?? DEFAULT_KERNELS).map((kernel) => [kernel.id, kernel]));
    this.host = {
      instanceId: "inst-0000000000000001",
      bootId: "boot-1",
      workspaces: new Map(),
      egress: new Map(),
      machines: new Map(),
      nextPid: 100,
      guests: { shutdownMs: 50, agentReadyMs: 20 },
    };
  }

  /** Starts the next daemon's life on what the last one left. The last one is dead from here on. */
  incarnate(
    faults: readonly { readonly kind: FaultKind; readonly step: string; readonly occurrence: number | "every" }[] = [],
  ): Incarnation {
    this.stopDaemon();
    const life = new Incarnation(this, new FaultPlan(faults), (self) => this.#openStore(self));
    this.#life = life;
    return life;
  }

  /** Ends the daemon's life, keeping what is durable. */
  stopDaemon(): void {
    const life = this.#life;
    if (life === undefined) return;
    life.crash();
    this.#durable = life.store.snapshot();
    this.#life = undefined;
  }

  /** What the store holds on disk now. */
  get durable(): StoreSnapshot {
    return this.#life?.store.snapshot() ?? this.#durable ?? { records: [], events: [], lastSequence: 0 };
  }

  durableRecords(collection: string): readonly { readonly key: string; readonly value: unknown }[] {
    return this.durable.records.filter((r) => r.collection === collection).map((r) => r.record);
  }

  /** The machine of a VM that runs or is paused, or waits to be read after its end. */
  machinesOf(vmId: string): readonly SimulatedMachine[] {
    return [...this.host.machines.values()].filter((m) => m.vmId === vmId);
  }

  reboot(number = 2): void {
    this.stopDaemon();
    for (const machine of this.host.machines.values()) machine.vanish();
    this.host.machines.clear();
    this.host.egress.clear(); // rules live in the kernel
    this.host.bootId = `boot-${number}`;
  }

  /** Lets all work run that waits for no timer. */
  async quiesce(): Promise<void> {
    let before = -1;
    while (before !== this.#stepsTaken()) {
      before = this.#stepsTaken();
      await settle(8);
    }
  }

  /**
   * Runs the world until `work` settles, moving the clock on only when nothing else is left to do.
   * @throws when `maxMs` of world time pass without that.
   */
  async run<T>(work: Promise<T>, maxMs = 3_600_000): Promise<T> {
    let settled = false;
    const mark = (): void => {
      settled = true;
    };
    work.then(mark, mark);
    const endMs = this.clock.bootMs() + maxMs;
    let strideMs = 1;
    for (;;) {
      await this.quiesce();
      if (settled) return await work;
      if (this.clock.bootMs() > endMs)
        throw new Error(`nothing came of it within ${maxMs} ms; last steps: ${this.#life?.faults.steps.slice(-8).join(", ")}`);
      const before = this.#stepsTaken();
      await this.clock.advance(strideMs);
      strideMs = this.#stepsTaken() === before ? Math.min(strideMs * 2, 5_000) : 1;
    }
  }

  #stepsTaken(): number {
    return this.#life?.faults.steps.length ?? 0;
  }

  makePorts(life: Incarnation, store: MemoryStore): EnginePorts {
    const { host, random } = this;
    const clock = mortalClock(this.clock, life);
    const logger = this.#options.logger ?? createNullLogger();
    const backend = createSimulatedBackend("sim", host, this.clock, life);
    const observer: VmObserver = { transition: (change) => void life.transitions.push(change) };
    const config: EngineConfig = { launchTimeoutMs: 30_000, stopTimeoutMs: 10_000, consoleLogMaxBytes: 65_536, ...this.#options.config };
    return {
      clock,
      random,
      logger,
      store,
      backends: new Map([[backend.name, backend]]),
      host: { instanceId: host.instanceId, bootId: host.bootId },
      observer,
      config,
      launchSlots: new Slots({ what: "launches", count: this.#options.parallelLaunches ?? 4, maxWaiting: 1000 }),
      ...createSimulatedPorts(this, host, this.clock, life),
    };
  }

  #openStore(life: Incarnation): MemoryStore {
    return createMemoryStore({
      ...(this.#durable === undefined ? {} : { snapshot: this.#durable }),
      onCommit: () => {
        if (life.isDead) return { kind: "hang", applied: false };
        const fault = life.faults.next("store.commit");
        switch (fault) {
          case undefined:
            return { kind: "apply" };
          case "fail":
          case "fail_after":
            return { kind: "fail", error: makeFaultError("store.commit"), applied: fault === "fail_after" };
          case "slow":
            return { kind: "delay", until: mortalClock(this.clock, life).sleep(SLOW_STEP_MS) };
          case "hang":
            return { kind: "delay", until: mortalClock(this.clock, life).sleep(SLOW_COMMIT_MS) };
          case "crash_before":
          case "crash_after":
            queueMicrotask(() => life.crash());
            return { kind: "hang", applied: fault === "crash_after" };
        }
      },
    });
  }
}

/** A commit that "hangs": a disk that answers in the end. One that never does is a dead daemon. */
const SLOW_COMMIT_MS = 20_000;
const SLOW_STEP_MS = 2_000;

const DEFAULT_IMAGES: readonly ImageInfo[] = [
  {
    id: "img-0000000000000001",
    name: "debian",
    kind: "rootfs",
    format: "raw",
    virtualSizeBytes: 1 << 30,
    config: {
      entrypoint: ["/bin/app"],
      cmd: ["serve"],
      env: ["PATH=/bin", "MODE=a"],
      user: "app",
      working_dir: "/srv",
      stop_signal: "SIGINT",
      labels: {},
    },
  },
  { id: "img-0000000000000002", name: "appliance", kind: "disk", format: "qcow2", virtualSizeBytes: 4 * (1 << 30) },
];

const DEFAULT_KERNELS: readonly KernelInfo[] = [
  { id: "krn-0000000000000001", name: "cloud", hasAgent: true },
  { id: "krn-0000000000000002", name: "bare", hasAgent: false },
];

/** Timers of a dead daemon never fire. */
function mortalClock(clock: Clock, life: Incarnation): Clock {
  return {
    wallMs: () => clock.wallMs(),
    bootMs: () => clock.bootMs(),
    schedule: (ms, callback) =>
      clock.schedule(ms, () => {
        if (!life.isDead) callback();
      }),
    sleep: async (ms, options) => {
      await clock.sleep(ms, options);
      if (life.isDead) await never();
    },
  };
}

export async function never(): Promise<never> {
  return await new Promise<never>(() => undefined);
}

async function untilAborted(signal: AbortSignal | undefined): Promise<never> {
  if (signal === undefined) return await never();
  return await new Promise<never>((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true }); // reasons are errors here
  });
}

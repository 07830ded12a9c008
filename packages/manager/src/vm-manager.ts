/**
 * The manager: everything the API needs of this host, over ports.
 *
 *   createVmManager: adopt every VM of the store -> ready -> close: let go of them, they run on
 *
 * `fluxvmd` hands the result to the API, whose `Platform` it satisfies by shape.
 */
import type { CreateImageRequest, CreateKernelRequest, ImageView, KernelView } from "@fluxvm/contracts";
import { withDeadline, type CallOptions } from "@fluxvm/core";
import { adoptVms, Slots, toVisiblePhase, type EnginePorts, type VmObserver } from "@fluxvm/engine";
import type { Instruments } from "@fluxvm/telemetry";
import { forwardImages, forwardKernels, type ArtifactOperations } from "./artifact-operations.ts";
import { BackendProber } from "./backend-prober.ts";
import { Fleet } from "./fleet.ts";
import { GuestOperations } from "./guest-operations.ts";
import { HostOperations } from "./host-operations.ts";
import { METRICS } from "./metrics.ts";
import type { ManagerPorts } from "./ports.ts";
import { VmOperations } from "./vm-operations.ts";

/** Launches that may wait for a slot; the next one is told `QUEUE_FULL`. */
const MAX_WAITING_LAUNCHES = 1024;
const CLOSE_TIMEOUT_MS = 20_000;

export interface VmManager {
  readonly vms: VmOperations;
  readonly guests: GuestOperations;
  readonly images: ArtifactOperations<CreateImageRequest, ImageView>;
  readonly kernels: ArtifactOperations<CreateKernelRequest, KernelView>;
  readonly host: HostOperations;
  /** Lets go of every VM, which runs on, and writes what is not on disk yet. The store stays open: its owner closes it. */
  close(): Promise<void>;
}

/**
 * Resolves when every VM has its driver back, so before the API listens.
 * @throws PlatformError of the store, `STORE_CORRUPT`, `STORE_TOO_NEW`.
 */
export async function createVmManager(ports: ManagerPorts, options: CallOptions): Promise<VmManager> {
  const metrics = ports.metrics.create(METRICS);
  const engine = makeEnginePorts(ports, metrics);
  const fleet = new Fleet(ports.config.users);
  for (const driver of await adoptVms(engine, options)) {
    fleet.add(driver);
    metrics.adopted.inc();
  }
  countAtRender(ports, metrics, fleet);
  const prober = new BackendProber(ports.backends, ports.clock);
  const vms = new VmOperations({ ports, engine, fleet, prober, metrics });
  return {
    vms,
    guests: new GuestOperations(fleet, ports.clock),
    images: forwardImages(ports.images),
    kernels: forwardKernels(ports.kernels),
    host: new HostOperations(ports, prober),
    close: async () => {
      vms.stopAccepting();
      await closeFleet(ports, fleet);
    },
  };
}

/** What does not let go in time is left to the next start, like after a crash. */
async function closeFleet(ports: ManagerPorts, fleet: Fleet): Promise<void> {
  const deadline = { clock: ports.clock, timeoutMs: CLOSE_TIMEOUT_MS, what: "letting go of the VMs" };
  try {
    await withDeadline(deadline, async () => await fleet.closeAll());
  } catch (error) {
    ports.logger.warn({ err: error }, "some vms were not let go of in time");
  }
}

function makeEnginePorts(ports: ManagerPorts, metrics: Instruments<typeof METRICS>): EnginePorts {
  const { config } = ports;
  const observer: VmObserver = {
    transition: ({ from, to, durationMs }) => {
      metrics.transitions.inc({ to });
      if (from === "starting" && to === "running") metrics.start.observe(durationMs / 1000);
    },
  };
  const launchSlots = new Slots({ what: "launches", count: config.parallelLaunches, maxWaiting: MAX_WAITING_LAUNCHES });
  return { ...ports, config, observer, launchSlots };
}

/** Gauges are set from what is true when they are asked for. */
function countAtRender(ports: ManagerPorts, metrics: Instruments<typeof METRICS>, fleet: Fleet): void {
  ports.metrics.beforeRender(() => {
    const snapshots = fleet.list().map((driver) => driver.snapshot);
    const byState = countBy(snapshots.map((s) => toVisiblePhase(s.state)));
    for (const state of METRICS.vms.labels.state) metrics.vms.set({ state }, byState.get(state) ?? 0);
    const byBackend = countBy(snapshots.map((s) => s.record.backend));
    for (const backend of ports.backends.keys()) metrics.vmsByBackend.set({ backend }, byBackend.get(backend) ?? 0);
    metrics.agentsReady.set(snapshots.filter((s) => s.agent.state === "ready").length);
  });
}

function countBy(items: readonly string[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const item of items) counts.set(item, (counts.get(item) ?? 0) + 1);
  return counts;
}

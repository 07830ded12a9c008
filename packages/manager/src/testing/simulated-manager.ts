/** A manager in a simulated world: one daemon's life over what the last one left. */
import type { CreateVmRequest, ImageView, KernelView } from "@fluxvm/contracts";
import { PlatformError, type Random } from "@fluxvm/core";
import { SimulatedWorld, type Fault, type Incarnation } from "@fluxvm/engine/testing";
import { MetricsRegistry } from "@fluxvm/telemetry";
import type { HostService, ImageService, KernelService, ManagerConfig, ManagerPorts } from "../ports.ts";
import { createVmManager, type VmManager } from "../vm-manager.ts";

export const FOREVER = { signal: new AbortController().signal };

const DEFAULT_CONFIG: ManagerConfig = {
  backends: ["sim"],
  accel: "auto",
  diskBytes: 2 ** 31,
  launchTimeoutMs: 30_000,
  stopTimeoutMs: 10_000,
  readyTimeoutMs: 60_000,
  consoleLogMaxBytes: 65_536,
  users: { kind: "range", start: 2_000_000, count: 100 },
  maxVcpus: 32,
  maxMemoryMib: 65_536,
  parallelLaunches: 4,
};

export interface SimulatedDaemon {
  readonly world: SimulatedWorld;
  readonly life: Incarnation;
  readonly manager: VmManager;
  readonly ports: ManagerPorts;
}

/** Starts a daemon's life. Its `manager` is there once adoption is over. @throws what starting throws. */
export async function startSimulatedDaemon(
  world: SimulatedWorld = new SimulatedWorld(),
  options: { readonly faults?: readonly Fault[]; readonly config?: Partial<ManagerConfig> } = {},
): Promise<SimulatedDaemon> {
  const { life, ports } = beginSimulatedDaemon(world, options);
  const manager = await world.run(createVmManager(ports, FOREVER));
  return { world, life, manager, ports };
}

/** Only the ports, for lives that end before their start is over. */
export function beginSimulatedDaemon(
  world: SimulatedWorld,
  options: { readonly faults?: readonly Fault[]; readonly config?: Partial<ManagerConfig> } = {},
): { readonly life: Incarnation; readonly ports: ManagerPorts } {
  const life = world.incarnate(options.faults ?? []);
  const ports: ManagerPorts = {
    ...life.ports,
    images: makeImageService(world),
    kernels: makeKernelService(world),
    hostService: HOST_SERVICE,
    metrics: new MetricsRegistry(),
    config: { ...DEFAULT_CONFIG, ...options.config },
  };
  return { life, ports };
}

export function makeCreateRequest(name: string, change: Partial<CreateVmRequest> = {}): CreateVmRequest {
  return { name, image: "debian", ...change };
}

/** A number from 0 to `below` - 1. */
export function pick(random: Random, below: number): number {
  const [high = 0, low = 0] = random.bytes(2);
  return (high * 256 + low) % below;
}

const HOST_SERVICE: HostService = {
  version: () => ({ version: "0.0.0", api: "v1", instance_id: "inst-0000000000000001", pid: 1 }),
  checks: async () => await Promise.resolve([{ name: "state_dir", ok: true }]),
  report: async () => await Promise.resolve({ boot_id: "boot-1", probed_at: new Date(0).toISOString(), kernel: "6", capabilities: [] }),
};

function makeImageService(world: SimulatedWorld): ImageService {
  const views = (): ImageView[] =>
    [...world.images.values()].map((image) => ({
      id: image.id,
      name: image.name,
      source: "sim",
      state: "ready",
      used_by: [],
      created_at: new Date(0).toISOString(),
    }));
  return makeService(views, "IMAGE_NOT_FOUND");
}

function makeKernelService(world: SimulatedWorld): KernelService {
  const views = (): KernelView[] =>
    [...world.kernels.values()].map((kernel) => ({
      id: kernel.id,
      name: kernel.name,
      source: "sim",
      state: "ready",
      is_default: false,
      has_agent: kernel.hasAgent,
      used_by: [],
      created_at: new Date(0).toISOString(),
    }));
  return makeService(views, "KERNEL_NOT_FOUND");
}

function makeService<View extends { readonly id: string; readonly name: string }>(
  views: () => View[],
  missing: "IMAGE_NOT_FOUND" | "KERNEL_NOT_FOUND",
) {
  const get = (reference: string): View => {
    const view = views().find((v) => v.id === reference || v.name === reference);
    if (view === undefined) throw new PlatformError(missing, `There is no "${reference}"`);
    return view;
  };
  return {
    create: async () => await Promise.reject(new PlatformError("IMAGE_SOURCE_INVALID", "the simulated host imports nothing")),
    list: views,
    get,
    wait: async (reference: string) => await Promise.resolve(get(reference)),
    delete: async (reference: string) => {
      get(reference);
      await Promise.resolve();
    },
  };
}

/**
 * From a record to a launched machine whose vCPUs have not run yet:
 *
 *   Requested --holdResources--> ResourcesHeld --launch--> Launched
 *
 * Each phase can only go forward, or release what it holds: in reverse order, with a fresh signal. The record is
 * durable before the first step, and what a crash leaves is found by listing (`teardown.ts`).
 */
import { PlatformError, Scope, withDeadline, type Clock } from "@fluxvm/core";
import type { BootPlan, DiskPlan, LaunchPlan, VmProcess } from "@fluxvm/vmm";
import { computeGuestConfig } from "./guest-config.ts";
import { computeBootPlan, computeLaunchPlan, joinPath } from "./launch-plan.ts";
import { VM_FILES, type EnginePorts } from "./ports.ts";
import { settleAll } from "./settle-all.ts";
import { CLEANUP_TIMEOUT_MS, endProcesses } from "./teardown.ts";
import type { VmRecord } from "./vm-record.ts";

export interface Requested {
  readonly phase: "requested";
  readonly record: VmRecord;
}

export interface ResourcesHeld {
  readonly phase: "resources_held";
  readonly record: VmRecord;
  readonly plan: LaunchPlan;
  readonly rootDisk: DiskPlan | undefined;
}

export interface Launched {
  readonly phase: "launched";
  readonly process: VmProcess;
  readonly rootDisk: DiskPlan | undefined;
}

const ENTROPY_BYTES = 64;

/** @throws PlatformError of the step that failed, after releasing what was held. */
export async function prepareAndLaunch(record: VmRecord, ports: EnginePorts, signal: AbortSignal): Promise<Launched> {
  const scope = new Scope();
  try {
    const held = await holdResources({ phase: "requested", record }, ports, scope, signal);
    const launched = await launch(held, ports, scope, signal);
    scope.commit();
    return launched;
  } catch (error) {
    for (const failure of await scope.release())
      ports.logger.warn({ vmId: record.id, what: failure.name, err: failure.error }, "release failed");
    throw error;
  }
}

async function holdResources(requested: Requested, ports: EnginePorts, scope: Scope, signal: AbortSignal): Promise<ResourcesHeld> {
  const { record } = requested;
  const { id, owner, spec } = record;
  const isNew = record.state.phase === "creating";
  // A start that was cut off may have left a machine running that no record speaks of: never two of one VM.
  if (!isNew) await endProcesses(id, undefined, ports, { signal });
  if (isNew) addRelease(scope, ports.clock, "workspace", async (fresh) => await ports.workspaces.remove(id, { signal: fresh }));
  const { path: workspace } = await ports.workspaces.ensure(id, owner, { signal });
  if (isNew && spec.network.mode === "user")
    addRelease(scope, ports.clock, "egress", async (fresh) => await ports.egress.remove({ vmId: id, uid: owner.uid }, { signal: fresh }));
  const [{ disks, rootDisk }, boot] = await settleAll<[MadeDisks, BootPlan]>([
    makeDisks(record, workspace, ports, signal),
    makeBootPlan(record, workspace, ports, signal),
  ]);
  const plan = computeLaunchPlan(record, {
    instanceId: ports.host.instanceId,
    workspace,
    disks,
    boot,
    consoleLogMaxBytes: ports.config.consoleLogMaxBytes,
  });
  return { phase: "resources_held", record, plan, rootDisk };
}

async function launch(held: ResourcesHeld, ports: EnginePorts, scope: Scope, signal: AbortSignal): Promise<Launched> {
  const { record, plan, rootDisk } = held;
  const backend = ports.backends.get(record.backend);
  if (backend === undefined)
    throw new PlatformError("BACKEND_UNKNOWN", `There is no backend "${record.backend}" in this daemon's configuration`);
  // By listing, since a launch that failed half-way has no handle.
  addRelease(scope, ports.clock, "process", async (fresh) => await endProcesses(record.id, undefined, ports, { signal: fresh }));
  // The rules are needed before the guest's first instruction, which is after the launch: so they are made beside it.
  const [process] = await settleAll<[VmProcess, void]>([backend.launch(plan, { signal }), openNetwork(record, ports, signal)]);
  signal.throwIfAborted(); // the machine is of no use to anybody any more
  return { phase: "launched", process, rootDisk };
}

interface MadeDisks {
  readonly disks: readonly DiskPlan[];
  readonly rootDisk: DiskPlan | undefined;
}

/** The root disk is made once and kept; the small ones are written for each start. */
async function makeDisks(record: VmRecord, workspace: string, ports: EnginePorts, signal: AbortSignal): Promise<MadeDisks> {
  const [rootDisk, config, seed] = await settleAll<[DiskPlan | undefined, DiskPlan | undefined, DiskPlan | undefined]>([
    makeRootDisk(record, workspace, ports, signal),
    writeConfigDisk(record, workspace, ports, signal),
    writeSeed(record, workspace, ports, signal),
  ]);
  const bootable = record.spec.boot.kind === "firmware";
  const root = rootDisk === undefined ? undefined : { ...rootDisk, bootable };
  return { disks: [root, config, seed].filter((disk) => disk !== undefined), rootDisk };
}

async function makeRootDisk(record: VmRecord, workspace: string, ports: EnginePorts, signal: AbortSignal): Promise<DiskPlan | undefined> {
  const { owner, rootDisk, spec } = record;
  if (rootDisk !== undefined || spec.image === undefined || spec.diskBytes === undefined) return rootDisk;
  const request = { imageId: spec.image.id, path: joinPath(workspace, VM_FILES.root), sizeBytes: spec.diskBytes, owner };
  return await ports.disks.createRoot(request, { signal });
}

async function writeConfigDisk(
  record: VmRecord,
  workspace: string,
  ports: EnginePorts,
  signal: AbortSignal,
): Promise<DiskPlan | undefined> {
  if (!record.spec.configDisk) return undefined;
  const config = computeGuestConfig(record, { wallMs: ports.clock.wallMs(), entropy: ports.random.bytes(ENTROPY_BYTES) });
  return await ports.disks.writeConfigDisk({ path: joinPath(workspace, VM_FILES.config), config, owner: record.owner }, { signal });
}

async function writeSeed(record: VmRecord, workspace: string, ports: EnginePorts, signal: AbortSignal): Promise<DiskPlan | undefined> {
  const { id, mac, owner, spec } = record;
  if (spec.cloudInit === undefined) return undefined;
  const seed = { instanceId: id, hostname: spec.hostname, cloudInit: spec.cloudInit, mac };
  return await ports.disks.writeSeed({ path: joinPath(workspace, VM_FILES.seed), seed, owner }, { signal });
}

async function openNetwork(record: VmRecord, ports: EnginePorts, signal: AbortSignal): Promise<void> {
  const { id, owner, spec } = record;
  if (spec.network.mode !== "user") return;
  await ports.egress.ensure({ vmId: id, uid: owner.uid, allowCidrs: spec.network.allow_cidrs ?? [] }, { signal });
}

async function makeBootPlan(record: VmRecord, workspace: string, ports: EnginePorts, signal: AbortSignal): Promise<BootPlan> {
  const { boot } = record.spec;
  if (boot.kind === "kernel") return computeBootPlan(record.spec, await ports.artifacts.locateKernel(boot.kernel.id, { signal }));
  if (boot.firmware === "bios") return computeBootPlan(record.spec, {});
  const varsPath = joinPath(workspace, VM_FILES.firmwareVars);
  await ports.disks.ensureFirmwareVars({ path: varsPath, owner: record.owner }, { signal });
  return computeBootPlan(record.spec, { varsPath });
}

function addRelease(scope: Scope, clock: Clock, name: string, run: (signal: AbortSignal) => Promise<void>): void {
  scope.add(name, async () => await withDeadline({ clock, timeoutMs: CLEANUP_TIMEOUT_MS, what: `releasing ${name}` }, run));
}

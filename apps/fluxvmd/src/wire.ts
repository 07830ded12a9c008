/**
 * The daemon's parts and what each is given, from the host up. Reads as the architecture diagram; decides nothing.
 */
import { join } from "node:path";
import type { Platform } from "@fluxvm/api";
import { createQemuBackend } from "@fluxvm/backend-qemu";
import type { Config } from "@fluxvm/contracts";
import { GIB, PlatformError, systemRandom, type InstanceId } from "@fluxvm/core";
import { openEgressGuard, openVmCgroups, readBootId, systemClock, type HostHelper } from "@fluxvm/host";
import { createImageService, createKernelService } from "@fluxvm/image";
import { createVmManager, type VmUsers } from "@fluxvm/manager";
import type { Store } from "@fluxvm/store";
import type { Logger, MetricsRegistry } from "@fluxvm/telemetry";
import type { VmBackend } from "@fluxvm/vmm";
import { createArtifacts } from "./adapters/artifacts.ts";
import { createConsoleLogs } from "./adapters/console-logs.ts";
import { createDisks } from "./adapters/disks.ts";
import { createEgress, createRefusingEgress, loadUidOwners, type ClosableEgress } from "./adapters/egress.ts";
import { createGuests } from "./adapters/guests.ts";
import { createHostProbe, createHostService } from "./adapters/host-service.ts";
import { listUsedUids, planVmUsers } from "./adapters/vm-users.ts";
import { createWorkspaces } from "./adapters/workspaces.ts";
import type { Binaries } from "./binaries.ts";

export interface WireInputs {
  readonly config: Config;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
  readonly instanceId: InstanceId;
  readonly version: string;
  readonly binaries: Binaries;
  readonly helper: HostHelper & { readonly pid: number | undefined };
  readonly store: Store;
  readonly skopeoEnvironment: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

export interface Runtime {
  readonly platform: Platform;
  /** Ends everything but VMs. */
  close(): Promise<void>;
}

/** Resolves when images are loaded and every VM is adopted. */
export async function wire(inputs: WireInputs): Promise<Runtime> {
  const { config, logger, metrics, instanceId, version, binaries, helper, store, signal } = inputs;
  const { state_dir: stateDir } = config;
  const clock = systemClock;
  const random = systemRandom;
  const bootId = readBootId();

  const probe = createHostProbe({
    helper,
    helperBinaryPath: binaries.hostHelper,
    probeGuestPath: binaries.probeGuest ?? "",
    stateDir,
    cachePath: join(stateDir, "host-report.json"),
  });
  const hostService = createHostService({ version, instanceId, stateDir, probe, helper });
  const cgroups = await openVmCgroups({ instanceId, helper });

  const imageOptions = {
    stateDir,
    store,
    tools: {
      hostHelper: binaries.hostHelper,
      guestAgent: binaries.guestAgent,
      skopeo: config.tools.skopeo,
      mmdebstrap: config.tools.mmdebstrap,
      mke2fs: config.tools.mke2fs,
      skopeoEnvironment: inputs.skopeoEnvironment,
    },
    clock,
    random,
    logger,
    limits: {
      maxUnpackedBytes: config.image.max_unpacked_gib * GIB,
      maxFiles: config.image.max_files,
      importTimeoutMs: config.image.fetch_timeout_ms,
    },
    parallelImports: config.image.parallel_imports,
  };
  const images = createImageService(imageOptions);
  const kernels = createKernelService(imageOptions);
  await images.start();
  await kernels.start();

  const qemu = createQemuBackend({
    config: { binary: config.tools.qemu, ovmfCode: config.tools.ovmf_code, launchTimeoutMs: config.vm.launch_timeout_ms },
    launcher: helper,
    cgroups,
    kvmUsable: probe.kvmUsable,
    bootId,
    clock,
    logger,
  });
  const backends = new Map<string, VmBackend>([[qemu.name, qemu]]);

  const owners = await loadUidOwners(store);
  const egress = await openEgress(inputs, owners);
  const manager = await createVmManager(
    {
      clock,
      random,
      logger,
      store,
      metrics,
      backends,
      images,
      kernels,
      hostService,
      host: { instanceId, bootId },
      workspaces: createWorkspaces({ stateDir, cgroups }),
      artifacts: createArtifacts({ images, kernels }),
      disks: createDisks({ images, ovmfVars: config.tools.ovmf_vars }),
      egress,
      guests: createGuests({ clock, random, logger }),
      consoles: createConsoleLogs({ stateDir, clock }),
      config: {
        backends: config.vm.backend,
        accel: config.vm.accel,
        diskBytes: Math.ceil(config.vm.disk_size_gib * GIB),
        launchTimeoutMs: config.vm.launch_timeout_ms,
        stopTimeoutMs: config.vm.stop_timeout_ms,
        readyTimeoutMs: config.vm.ready_timeout_ms,
        consoleLogMaxBytes: config.vm.console_log_max_bytes,
        users: chooseUsers(config, instanceId, owners),
        maxVcpus: config.vm.max_vcpus,
        maxMemoryMib: config.vm.max_memory_mib,
        parallelLaunches: config.vm.parallel_launches,
      },
    },
    { signal },
  );

  return {
    platform: manager,
    async close() {
      await manager.close();
      qemu.detach();
      await images.close();
      await kernels.close();
      await egress.close();
      await cgroups.removeInstance({ signal: AbortSignal.timeout(5000) });
    },
  };
}

/** As root each VM has a uid of its own; without, everything is the caller's. `owners`: the uids of this instance's VMs. */
function chooseUsers(config: Config, instanceId: InstanceId, owners: ReadonlyMap<number, string>): VmUsers {
  const uid = process.getuid?.() ?? 0;
  if (uid !== 0) return { kind: "shared", uid, gid: process.getgid?.() ?? uid };
  const range = { start: config.vm.uid_start, count: config.vm.uid_count };
  const foreign = new Set([...listUsedUids(range)].filter((used) => !owners.has(used)));
  return planVmUsers(range, instanceId, foreign);
}

async function openEgress({ instanceId, logger, signal }: WireInputs, owners: ReadonlyMap<number, string>): Promise<ClosableEgress> {
  if (process.getuid?.() !== 0) return createRefusingEgress("without root the host cannot be kept out of a guest's reach");
  try {
    const guard = await openEgressGuard({ instanceId, signal });
    return createEgress({ guard, owners });
  } catch (error) {
    if (!(error instanceof PlatformError)) throw error;
    logger.warn({ err: error }, "no egress guard, vms get no network");
    return createRefusingEgress(error.message);
  }
}

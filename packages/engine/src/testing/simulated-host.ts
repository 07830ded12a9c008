/** The simulated host's side of the ports: directories, disks, rules, images, consoles and guests. */
import { PlatformError, type Clock } from "@fluxvm/core";
import type { StoreChange } from "@fluxvm/store";
import type { DiskPlan } from "@fluxvm/vmm";
import type { Artifacts, ConsoleLogs, Disks, Egress, EnginePorts, Workspaces } from "../ports.ts";
import { createSimulatedGuests } from "./simulated-guest.ts";
import type { HostState, Incarnation, SimulatedWorld } from "./simulated-world.ts";

export function createSimulatedPorts(
  world: SimulatedWorld,
  host: HostState,
  clock: Clock,
  life: Incarnation,
): Pick<EnginePorts, "workspaces" | "disks" | "egress" | "artifacts" | "consoles" | "guests"> {
  return {
    workspaces: createWorkspaces(host, life),
    disks: createDisks(host, life),
    egress: createEgress(host, life),
    artifacts: createArtifacts(world, life),
    consoles: createConsoles(host, life),
    guests: createSimulatedGuests(host, clock, life),
  };
}

function createWorkspaces(host: HostState, life: Incarnation): Workspaces {
  return {
    ensure: async (vmId, owner, { signal }) =>
      await life.step("workspaces.ensure", signal, () => {
        if (!host.workspaces.has(vmId)) host.workspaces.set(vmId, { owner, files: new Map() });
        return { path: `/vms/${vmId}` };
      }),
    remove: async (vmId, { signal }) =>
      await life.step("workspaces.remove", signal, () => {
        const inUse = [...host.machines.values()].some((m) => m.vmId === vmId);
        if (inUse) throw new PlatformError("HOST_TOOL_FAILED", `workspace of ${vmId} removed under a process`);
        host.workspaces.delete(vmId);
      }),
    list: async ({ signal }) => await life.step("workspaces.list", signal, () => [...host.workspaces.keys()]),
  };
}

function createDisks(host: HostState, life: Incarnation): Disks {
  const write = async (step: string, path: string, serial: string, content: string, signal: AbortSignal): Promise<DiskPlan> =>
    await life.step(step, signal, () => {
      const [, , vmId = "", file = ""] = path.split("/");
      const workspace = host.workspaces.get(vmId);
      if (workspace === undefined) throw new PlatformError("HOST_TOOL_FAILED", `no workspace for ${path}`);
      workspace.files.set(file, content);
      return { serial, path, format: "raw" as const, readonly: serial !== "fluxvm-root", backing: [], bootable: false };
    });
  return {
    createRoot: async (request, { signal }) =>
      await write("disks.createRoot", request.path, "fluxvm-root", `${request.imageId}:${request.sizeBytes}`, signal),
    writeConfigDisk: async (request, { signal }) =>
      await write("disks.writeConfigDisk", request.path, "fluxvm-config", JSON.stringify(request.config), signal),
    writeSeed: async (request, { signal }) =>
      await write("disks.writeSeed", request.path, "fluxvm-seed", JSON.stringify(request.seed), signal),
    ensureFirmwareVars: async (request, { signal }) => {
      await write("disks.ensureFirmwareVars", request.path, "vars", "", signal);
    },
  };
}

function createEgress(host: HostState, life: Incarnation): Egress {
  return {
    ensure: async (rule, { signal }) => await life.step("egress.ensure", signal, () => void host.egress.set(rule.vmId, rule)),
    remove: async (rule, { signal }) => await life.step("egress.remove", signal, () => void host.egress.delete(rule.vmId)),
    list: async ({ signal }) => await life.step("egress.list", signal, () => [...host.egress.values()]),
  };
}

/** Leases in memory are made from the durable ones at the start of each life, as the image store does. */
function createArtifacts(world: SimulatedWorld, life: Incarnation): Artifacts {
  const held = new Map<string, Set<string>>();
  for (const { record } of life.store.snapshot().records.filter((r) => r.collection === "leases")) {
    const { object, holder } = record.value as { object: string; holder: string }; // written below
    held.set(holder, (held.get(holder) ?? new Set()).add(object));
  }
  const keyOf = (object: string, holder: string): string => `${object}/${holder}`;
  return {
    findImage: async (reference, { signal }) =>
      await life.step("artifacts.findImage", signal, () => {
        const image = [...world.images.values()].find((i) => i.id === reference || i.name === reference);
        if (image === undefined) throw new PlatformError("IMAGE_NOT_FOUND", `There is no image "${reference}"`);
        return image;
      }),
    findKernel: async (reference, { signal }) =>
      await life.step("artifacts.findKernel", signal, () => {
        const kernel = [...world.kernels.values()].find((k) => reference === undefined || k.id === reference || k.name === reference);
        if (kernel === undefined) throw new PlatformError("KERNEL_NOT_FOUND", `There is no kernel "${reference ?? "default"}"`);
        return kernel;
      }),
    locateKernel: async (kernelId, { signal }) =>
      await life.step("artifacts.locateKernel", signal, () => {
        if (!world.kernels.has(kernelId)) throw new PlatformError("KERNEL_NOT_FOUND", `There is no kernel ${kernelId}`);
        return { kernelPath: `/kernels/${kernelId}/vmlinux` };
      }),
    lease: (holder, { imageId, kernelId }) => {
      if (imageId !== undefined && !world.images.has(imageId)) throw new PlatformError("IMAGE_NOT_FOUND", `There is no image ${imageId}`);
      const objects = [imageId, kernelId].filter((id) => id !== undefined);
      held.set(holder, new Set(objects));
      return objects.map((object): StoreChange => ({
        kind: "put",
        collection: "leases",
        key: keyOf(object, holder),
        value: { object, holder },
      }));
    },
    release: (holder) => {
      const objects = [...(held.get(holder) ?? [])];
      held.delete(holder);
      return objects.map((object): StoreChange => ({ kind: "delete", collection: "leases", key: keyOf(object, holder) }));
    },
    holders: () => [...held.keys()],
  };
}

function createConsoles(host: HostState, life: Incarnation): ConsoleLogs {
  const read = (vmId: string): Uint8Array => new TextEncoder().encode(host.workspaces.has(vmId) ? `console of ${vmId}\n` : "");
  return {
    tail: async (vmId, _lines, { signal }) => await life.step("consoles.tail", signal, () => read(vmId)),
    async *follow(vmId, _lines, { signal }) {
      yield await life.step("consoles.follow", signal, () => read(vmId));
    },
  };
}

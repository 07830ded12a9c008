/**
 * The beginning of a VM: the intent. One commit holds the record, in state `creating`, and the leases of image and
 * kernel; only then does anything happen on the host.
 */
import type { StoreChange } from "@fluxvm/store";
import type { EnginePorts } from "./ports.ts";
import { VmDriver } from "./vm-driver.ts";
import { getHeldArtifacts, planInsert, planRemoval, type VmRecord } from "./vm-record.ts";

/** A VM about to be made: the record without what its beginning decides. */
export type NewVm = Omit<VmRecord, "format" | "state" | "bootId" | "rootDisk" | "startedAtWallMs">;

/**
 * Resolves with the driver once the intent is durable; it goes on by itself. Wait with `judgeCreate`.
 * `onNotStored`: on failure, called if it is certain that no record is on disk, so that its user id may be given to
 * another VM. Otherwise the next start rolls that record back, and must not take another VM's rules along.
 * @throws PlatformError of the store, `IMAGE_NOT_FOUND`, `KERNEL_NOT_FOUND`; nothing is kept then.
 */
export async function createVm(vm: NewVm, ports: EnginePorts, onNotStored: () => void = () => undefined): Promise<VmDriver> {
  const state = { phase: "creating", stopRequested: false } as const;
  const record: VmRecord = { ...vm, format: 1, bootId: ports.host.bootId, state };
  const data = { to: "creating", reason: "create_requested", name: vm.name };
  const leases = leaseOrGiveUp(vm, ports, onNotStored);
  try {
    await ports.store.commit([
      planInsert(record),
      ...leases,
      { kind: "event", type: "vm.creating", subject: vm.id, wallMs: ports.clock.wallMs(), data },
    ]);
  } catch (error) {
    const undo = [planRemoval(record), ...ports.artifacts.release(vm.id)]; // the commit may be on disk all the same
    await ports.store
      .commit(undo)
      .then(onNotStored, (again: unknown) => ports.logger.warn({ vmId: vm.id, err: again }, "vm intent not undone"));
    throw error;
  }
  ports.logger.info(
    { vmId: vm.id, vmName: vm.name, from: "none", to: "creating", reason: "create_requested", durationMs: 0 },
    "vm transition",
  );
  ports.observer.transition({ vmId: vm.id, from: "none", to: "creating", reason: "create_requested", durationMs: 0 });
  return new VmDriver({ record, state, effect: "launch", process: undefined, dirty: false }, ports);
}

function leaseOrGiveUp(vm: NewVm, ports: EnginePorts, onNotStored: () => void): readonly StoreChange[] {
  try {
    return ports.artifacts.lease(vm.id, getHeldArtifacts(vm.spec));
  } catch (error) {
    onNotStored();
    throw error;
  }
}

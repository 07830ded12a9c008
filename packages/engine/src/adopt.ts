/**
 * The beginning of a daemon's life: every VM in the store gets its driver back before the API listens.
 *
 *   load records -> look at each machine -> remove what no record speaks of -> start the drivers
 *
 * Leftovers go before any driver starts, so that nothing a driver makes can be taken for one. Killing the daemon at
 * any point of this and starting it again converges.
 */
import { withDeadline, type CallOptions } from "@fluxvm/core";
import type { StoreChange } from "@fluxvm/store";
import type { VmProcess } from "@fluxvm/vmm";
import { attemptAdoption } from "./adopt-process.ts";
import { planAdoption, type AdoptionPlan, type SeenMachine } from "./adoption-plan.ts";
import { readNow, rebaseDeadline } from "./deadline.ts";
import type { EnginePorts } from "./ports.ts";
import { Slots } from "./slots.ts";
import { getProcessRecord, toStoredState, toVisiblePhase } from "./state-view.ts";
import { CLEANUP_TIMEOUT_MS, removeLeftovers } from "./teardown.ts";
import { VmDriver } from "./vm-driver.ts";
import { parseVmRecord, type VmRecord } from "./vm-record.ts";

const PARALLEL_ADOPTIONS = 16;

interface Adoption {
  readonly record: VmRecord;
  readonly plan: AdoptionPlan;
  readonly process: VmProcess | undefined;
}

/** @throws PlatformError of the store, `STORE_CORRUPT`, `STORE_TOO_NEW`: nothing has been touched then. */
export async function adoptVms(ports: EnginePorts, options: CallOptions): Promise<readonly VmDriver[]> {
  const records = (await ports.store.load("vms")).map(parseVmRecord);
  const slots = new Slots({ what: "adoptions", count: PARALLEL_ADOPTIONS, maxWaiting: records.length });
  const adoptions = await Promise.all(
    records.map(async (record) => await slots.run(options.signal, async () => await lookAt(record, ports, options))),
  );
  await removeLeftovers(new Map(records.map((record) => [record.id, record])), ports, options);
  await dropLostLeases(records, ports);
  await restoreRules(adoptions, ports, options);
  return adoptions.map((adoption) => startDriver(adoption, ports));
}

async function lookAt(record: VmRecord, ports: EnginePorts, options: CallOptions): Promise<Adoption> {
  let seen: SeenMachine = "unknown";
  let process: VmProcess | undefined;
  try {
    ({ seen, process } = await attemptAdoption(record, ports, options));
  } catch (error) {
    options.signal.throwIfAborted();
    ports.logger.warn({ vmId: record.id, err: error }, "vmm does not answer, will try again");
  }
  const plan = planAdoption(record.state, { seen, rebooted: record.bootId !== ports.host.bootId, wallMs: ports.clock.wallMs() });
  return { record, plan, process };
}

function startDriver(adoption: Adoption, ports: EnginePorts): VmDriver {
  const { plan, process, record: before } = adoption;
  const { clock, host, logger, observer } = ports;
  const deadline = before.deadline === undefined ? undefined : rebaseDeadline(before.deadline, readNow(clock, host.bootId));
  const record: VmRecord = { ...before, deadline, bootId: host.bootId, state: toStoredState(plan.state) };
  const from = before.state.phase;
  const to = toVisiblePhase(plan.state);
  const change = { from, to, reason: plan.reason || "adopted", durationMs: 0 };
  logger.info({ vmId: record.id, vmName: record.name, ...change }, from === to ? "vm adopted" : "vm transition");
  if (from !== to) observer.transition({ vmId: record.id, ...change });
  const event: StoreChange = {
    kind: "event",
    type: `vm.${to}`,
    subject: record.id,
    wallMs: clock.wallMs(),
    data: { ...change, name: record.name },
  };
  const start = { record, state: plan.state, effect: plan.effect, process, dirty: from !== to || before.bootId !== host.bootId };
  return new VmDriver({ ...start, events: from === to ? [] : [event] }, ports);
}

/** Rules of running VMs that somebody took away meanwhile, as a reload of the firewall does. */
async function restoreRules(adoptions: readonly Adoption[], ports: EnginePorts, options: CallOptions): Promise<void> {
  const live = adoptions.filter(({ plan, record }) => getProcessRecord(plan.state) !== undefined && record.spec.network.mode === "user");
  if (live.length === 0) return;
  const attempt = async (vmId: string | undefined, work: (signal: AbortSignal) => Promise<void>): Promise<void> => {
    try {
      await withDeadline(
        { clock: ports.clock, timeoutMs: CLEANUP_TIMEOUT_MS, signal: options.signal, what: "restoring egress rules" },
        work,
      );
    } catch (error) {
      options.signal.throwIfAborted();
      ports.logger.error({ vmId, err: error }, "egress rules could not be restored");
    }
  };
  await attempt(undefined, async (listing) => {
    const present = new Set((await ports.egress.list({ signal: listing })).map((rule) => rule.vmId));
    for (const { record } of live.filter((adoption) => !present.has(adoption.record.id))) {
      const { id, owner, spec } = record;
      const allowCidrs = spec.network.mode === "user" ? (spec.network.allow_cidrs ?? []) : [];
      await attempt(id, async (signal) => await ports.egress.ensure({ vmId: id, uid: owner.uid, allowCidrs }, { signal }));
      ports.logger.warn({ vmId: id }, "egress rules restored");
    }
  });
}

/** Leases whose VM is not there: none in normal life, since both go in one commit. */
async function dropLostLeases(records: readonly VmRecord[], ports: EnginePorts): Promise<void> {
  const known = new Set(records.map((record) => record.id));
  const lost = ports.artifacts.holders().filter((holder) => holder.startsWith("vm-") && !known.has(holder));
  if (lost.length === 0) return;
  ports.logger.warn({ holders: lost }, "leases without a vm dropped");
  const changes = lost.flatMap((holder) => ports.artifacts.release(holder));
  await withDeadline({ clock: ports.clock, timeoutMs: 10_000, what: "dropping leases" }, async () => await ports.store.commit(changes));
}

/**
 * What must be true of a simulated host whenever a daemon has been left alone for a while: no VM is lost, doubled or
 * leaked, and what the store, the host and the manager say of each VM agrees.
 */
import assert from "node:assert/strict";
import type { VmView } from "@fluxvm/contracts";
import type { SimulatedWorld } from "@fluxvm/engine/testing";

interface RecordOnDisk {
  readonly id: string;
  readonly name: string;
  readonly owner: { readonly uid: number };
  readonly state: { readonly phase: string; readonly process?: { readonly pid: number } };
}

const RESTING = new Set(["running", "paused", "stopped", "failed"]);

export function assertConsistent(world: SimulatedWorld, views: readonly VmView[], context: string): void {
  const records = world.durableRecords("vms").map((r) => r.value as RecordOnDisk); // written by the engine
  const ids = new Set(records.map((r) => r.id));
  const say = (what: string): string => `${what} (${context})`;

  assert.deepEqual([...views.map((v) => v.id)].sort(), [...ids].sort(), say("the manager's VMs are the store's"));
  assert.equal(new Set(records.map((r) => r.name)).size, records.length, say("names are unique"));
  assert.equal(new Set(records.map((r) => r.owner.uid)).size, records.length, say("user ids are unique"));
  for (const record of records) assertOne(world, record, views, say);

  for (const machine of world.host.machines.values()) assert.ok(ids.has(machine.vmId), say(`process of ${machine.vmId} has a record`));
  for (const machine of world.host.machines.values()) assert.ok(machine.boots <= 1, say("no machine is booted twice"));
  assert.deepEqual([...world.host.workspaces.keys()].sort(), [...ids].sort(), say("a workspace for each VM and no other"));
  for (const vmId of world.host.egress.keys()) assert.ok(ids.has(vmId), say(`rules of ${vmId} have a record`));
  for (const { value } of world.durableRecords("leases")) {
    const { holder } = value as { readonly holder: string }; // written by the simulated image store
    assert.ok(ids.has(holder), say(`lease of ${holder} has a record`));
  }
}

function assertOne(world: SimulatedWorld, record: RecordOnDisk, views: readonly VmView[], say: (what: string) => string): void {
  const { id, state } = record;
  const machines = world.machinesOf(id);
  const view = views.find((v) => v.id === id);
  assert.ok(RESTING.has(state.phase), say(`${id} came to rest, not ${state.phase}`));
  assert.equal(view?.state, state.phase, say(`${id} is shown as it is stored`));
  if (state.phase === "running" || state.phase === "paused") {
    assert.equal(machines.length, 1, say(`${id} has one process`));
    assert.equal(machines[0]?.status, state.phase, say(`${id}'s process is ${state.phase}`));
    assert.equal(machines[0]?.pid, state.process?.pid, say(`${id}'s record names its process`));
    assert.ok(world.host.egress.has(id), say(`${id} runs behind its rules`));
  } else {
    assert.equal(machines.length, 0, say(`${id} is ${state.phase} and has no process`));
  }
  assert.equal(
    world.durableRecords("leases").filter((l) => (l.value as { readonly holder: string }).holder === id).length,
    2,
    say(`${id} holds its image and kernel`),
  );
}

export function assertNothingLeft(world: SimulatedWorld, context: string): void {
  assert.deepEqual(
    [...world.host.machines.values()].map((m) => m.vmId),
    [],
    `processes (${context})`,
  );
  assert.deepEqual([...world.host.workspaces.keys()], [], `workspaces (${context})`);
  assert.deepEqual([...world.host.egress.keys()], [], `egress rules (${context})`);
  assert.deepEqual(world.durableRecords("vms"), [], `records (${context})`);
  assert.deepEqual(world.durableRecords("leases"), [], `leases (${context})`);
}

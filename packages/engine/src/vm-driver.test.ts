import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError, type ErrorCode } from "@fluxvm/core";
import { adoptVms } from "./adopt.ts";
import { createVm } from "./create-vm.ts";
import { MAX_RESETS, SETTLED_MS } from "./reset-budget.ts";
import { toVisiblePhase } from "./state-view.ts";
import { makeNewVm, SimulatedWorld, type Fault, type Incarnation, type NewVmOptions, type SimulatedMachine } from "./testing/index.ts";
import type { VmDriver } from "./vm-driver.ts";
import type { VmRequest } from "./vm-state.ts";
import { judgeCreate } from "./waiters.ts";

const FOREVER = { signal: new AbortController().signal };
const STOP: VmRequest = { kind: "stop", force: false, graceMs: 10_000 };
const RESET = { reason: "guest_reset", message: "The guest reset" } as const;
const DELETE: VmRequest = { kind: "delete", reason: "requested" };

async function create(world: SimulatedWorld, life: Incarnation, options: NewVmOptions = {}): Promise<VmDriver> {
  const driver = await world.run(createVm(makeNewVm(life.ports, options), life.ports));
  await world.run(driver.waitUntil(judgeCreate, FOREVER));
  return driver;
}

async function start(
  options: { readonly faults?: readonly Fault[]; readonly vm?: NewVmOptions } = {},
): Promise<{ world: SimulatedWorld; life: Incarnation; driver: VmDriver; machine: SimulatedMachine }> {
  const world = new SimulatedWorld();
  const life = world.incarnate(options.faults ?? []);
  const driver = await create(world, life, options.vm);
  const [machine] = world.machinesOf(driver.id);
  assert.ok(machine !== undefined);
  return { world, life, driver, machine };
}

const phaseOf = (driver: VmDriver): string => toVisiblePhase(driver.snapshot.state);

function hasCode(code: ErrorCode): (error: unknown) => boolean {
  return (error) => {
    assert.ok(isPlatformError(error, code), `${code} expected, got ${String(error)}`);
    return true;
  };
}

function assertNothingLeft(world: SimulatedWorld): void {
  assert.deepEqual(
    [...world.host.machines.values()].map((m) => m.vmId),
    [],
    "processes",
  );
  assert.deepEqual([...world.host.workspaces.keys()], [], "workspaces");
  assert.deepEqual([...world.host.egress.keys()], [], "egress rules");
  assert.deepEqual(world.durableRecords("vms"), [], "records");
  assert.deepEqual(world.durableRecords("leases"), [], "leases");
}

test("a created VM runs, with its record, leases, files and rules", async () => {
  const { world, life, driver, machine } = await start();
  assert.equal(phaseOf(driver), "running");
  assert.equal(machine.boots, 1);
  assert.deepEqual(
    life.transitions.map((t) => t.to),
    ["creating", "starting", "running"],
  );
  assert.equal(world.durableRecords("vms").length, 1);
  assert.equal(world.durableRecords("leases").length, 2);
  assert.deepEqual([...(world.host.workspaces.get(driver.id)?.files.keys() ?? [])], ["root.qcow2", "config.img", "seed.img"]);
  assert.equal(world.host.egress.get(driver.id)?.uid, 2_000_000);
  assert.deepEqual(
    machine.plan.disks.map((d) => d.serial),
    ["fluxvm-root", "fluxvm-config", "fluxvm-seed"],
  );
  const events = world.durable.events.map((e) => e.type);
  assert.deepEqual(events, ["vm.creating", "vm.starting", "vm.running"]);
});

test("intent comes first: the record is on disk before the first effect, the process before the first instruction", async () => {
  const { life } = await start();
  const { steps } = life.faults;
  assert.equal(steps[0], "store.commit");
  assert.ok(steps.indexOf("store.commit") < steps.indexOf("workspaces.ensure"));
  const launch = steps.indexOf("backend.launch");
  const boot = steps.indexOf("process.boot");
  assert.ok(steps.slice(launch, boot).includes("store.commit"));
});

test("a graceful stop lets the guest power off; a start brings it back on the same disk", async () => {
  const { world, driver, machine } = await start();
  const stopped = await world.run(driver.request(STOP, FOREVER));
  assert.deepEqual(stopped.state.phase === "stopped" && stopped.state.reason, "guest_shutdown");
  assert.ok(machine.isGone);
  const root = world.host.workspaces.get(driver.id)?.files.get("root.qcow2");
  await world.run(driver.request({ kind: "start" }, FOREVER));
  assert.equal(phaseOf(driver), "running");
  assert.equal(world.host.workspaces.get(driver.id)?.files.get("root.qcow2"), root);
  assert.equal(world.machinesOf(driver.id).length, 1);
});

test("a guest that ignores the request is killed when its time is over, not before", async () => {
  const { world, driver } = await start();
  world.host.guests = { ...world.host.guests, shutdownMs: "ignored" };
  const before = world.clock.bootMs();
  const stopped = await world.run(driver.request({ ...STOP, graceMs: 3000 }, FOREVER));
  const took = world.clock.bootMs() - before;
  assert.ok(took >= 3000 && took < 9000, `${took} ms`);
  assert.equal(stopped.state.phase === "stopped" && stopped.state.reason, "killed");
});

test("a guest that is still starting and hears no power button is stopped gracefully once its agent answers", async () => {
  const world = new SimulatedWorld();
  const life = world.incarnate();
  world.host.guests = { shutdownMs: 50, agentReadyMs: 2000, powerButton: "ignored" };
  const driver = await create(world, life);
  const before = world.clock.bootMs();
  const stopped = await world.run(driver.request({ ...STOP, graceMs: 10_000 }, FOREVER));
  assert.equal(stopped.state.phase === "stopped" && stopped.state.reason, "guest_shutdown");
  const took = world.clock.bootMs() - before;
  assert.ok(took < 5000, `${took} ms`);
  world.host.guests = { ...world.host.guests, agentReadyMs: "never" };
  await world.run(driver.request({ kind: "start" }, FOREVER));
  const killed = await world.run(driver.request({ ...STOP, graceMs: 3000 }, FOREVER));
  assert.equal(killed.state.phase === "stopped" && killed.state.reason, "killed");
});

test("a forced stop cuts a graceful one short, and both callers are answered", async () => {
  const { world, driver } = await start();
  world.host.guests = { ...world.host.guests, shutdownMs: "ignored" };
  const before = world.clock.bootMs();
  const graceful = driver.request({ ...STOP, graceMs: 60_000 }, FOREVER);
  await world.quiesce();
  const forced = driver.request({ ...STOP, force: true }, FOREVER);
  await world.run(Promise.all([graceful, forced]));
  assert.ok(world.clock.bootMs() - before < 1000);
});

test("stopping a stopped VM is fine and starts nothing", async () => {
  const { world, life, driver } = await start();
  await world.run(driver.request(STOP, FOREVER));
  const steps = life.faults.steps.length;
  await world.run(driver.request(STOP, FOREVER));
  assert.equal(life.faults.steps.length, steps);
});

test("start while stopping is denied", async () => {
  const { world, driver } = await start();
  const stopping = driver.request(STOP, FOREVER);
  await assert.rejects(world.run(driver.request({ kind: "start" }, FOREVER)), hasCode("VM_STOP_PENDING"));
  await world.run(stopping);
});

test("restart ends the machine and launches another", async () => {
  const { world, driver, machine } = await start();
  await world.run(driver.request({ kind: "restart", force: false, graceMs: 1000 }, FOREVER));
  const [next] = world.machinesOf(driver.id);
  assert.ok(machine.isGone && next !== undefined && next !== machine && next.boots === 1);
  assert.equal(phaseOf(driver), "running");
});

test("pause stops it, resume sets the guest's clock before any call can reach the guest", async () => {
  const { world, driver, machine } = await start();
  await world.run(driver.requireGuest().waitReady(FOREVER));
  await world.run(driver.request({ kind: "pause" }, FOREVER));
  assert.equal(machine.status, "paused");
  assert.throws(() => driver.requireGuest(), hasCode("VM_NOT_RUNNING"));
  await world.clock.advance(60_000);
  const resumed = driver.request({ kind: "resume" }, FOREVER);
  const reachedAfterClock = driver
    .waitUntil((s) => (s.state.phase === "running" ? { kind: "done" } : { kind: "pending" }), FOREVER)
    .then(() => machine.guestClockSetAtMs !== undefined);
  await world.run(resumed);
  assert.equal(await reachedAfterClock, true);
  assert.equal(machine.status, "running");
});

test("a pause that fails leaves the VM running and says why", async () => {
  const { world, driver } = await start({ faults: [{ kind: "fail", step: "process.pause", occurrence: 1 }] });
  await assert.rejects(world.run(driver.request({ kind: "pause" }, FOREVER)), hasCode("HOST_TOOL_FAILED"));
  assert.equal(phaseOf(driver), "running");
  await world.run(driver.request({ kind: "pause" }, FOREVER));
  assert.equal(phaseOf(driver), "paused");
});

test("a pause that hangs ends with its deadline", async () => {
  const { world, driver } = await start({ faults: [{ kind: "hang", step: "process.pause", occurrence: 1 }] });
  await assert.rejects(world.run(driver.request({ kind: "pause" }, FOREVER)), hasCode("DEADLINE_EXCEEDED"));
  assert.equal(phaseOf(driver), "running");
});

test("a paused VM can be stopped gracefully", async () => {
  const { world, driver } = await start();
  await world.run(driver.request({ kind: "pause" }, FOREVER));
  const stopped = await world.run(driver.request(STOP, FOREVER));
  assert.equal(stopped.state.phase === "stopped" && stopped.state.reason, "guest_shutdown");
});

test("a guest that powers off by itself is stopped, one that crashes has failed, and both start again", async () => {
  const { world, driver, machine } = await start();
  machine.endByGuest({ reason: "guest_shutdown" });
  await world.quiesce();
  assert.equal(phaseOf(driver), "stopped");
  await world.run(driver.request({ kind: "start" }, FOREVER));
  world.machinesOf(driver.id)[0]?.vanish({ reason: "crashed", signal: "SIGSEGV", message: "The VMM crashed" });
  await world.quiesce();
  assert.deepEqual(driver.snapshot.state.phase === "failed" && driver.snapshot.state.message, "The VMM crashed");
  await world.run(driver.request({ kind: "start" }, FOREVER));
  assert.equal(phaseOf(driver), "running");
});

test("a guest that reboots gets a new machine on the same disk, with a new config disk; its TTL goes on", async () => {
  const { world, life, driver, machine } = await start({ vm: { ttlMs: 600_000 } });
  await world.clock.advance(100_000);
  const files = (): Map<string, unknown> => new Map(world.host.workspaces.get(driver.id)?.files);
  const before = files();
  const { deadline } = driver.snapshot.record;
  const written = life.faults.steps.filter((step) => step === "disks.writeConfigDisk").length;
  machine.endByGuest(RESET);
  await world.quiesce();
  const [next] = world.machinesOf(driver.id);
  assert.ok(machine.isGone && next !== undefined && next !== machine && next.boots === 1);
  assert.equal(phaseOf(driver), "running");
  assert.equal(files().get("root.qcow2"), before.get("root.qcow2"));
  assert.equal(life.faults.steps.filter((step) => step === "disks.writeConfigDisk").length, written + 1);
  assert.deepEqual(driver.snapshot.record.deadline, deadline);
  assert.equal(driver.snapshot.lastError, undefined);
  assert.deepEqual(
    life.transitions.slice(-2).map(({ from, to, reason }) => [from, to, reason]),
    [
      ["running", "starting", "guest_reset"],
      ["starting", "running", "booted"],
    ],
  );
  await world.run(driver.requireGuest().waitReady(FOREVER));
  await world.clock.advance(501_000);
  await world.quiesce();
  assertNothingLeft(world);
});

test("a guest that resets for ever without coming up fails after a few times, and can be started again", async () => {
  for (const vm of [{}, { spec: { agent: false } }]) {
    const { world, driver } = await start({ vm });
    world.host.guests = { ...world.host.guests, agentReadyMs: "never" };
    const machines = new Set<SimulatedMachine>();
    const resetUntilFailed = async (): Promise<void> => {
      machines.clear();
      for (let i = 0; i < 50 && phaseOf(driver) === "running"; i += 1) {
        const [machine] = world.machinesOf(driver.id);
        assert.ok(machine !== undefined && !machines.has(machine));
        machines.add(machine);
        await world.clock.advance(3_000);
        machine.endByGuest(RESET);
        await world.quiesce();
      }
    };
    await resetUntilFailed();
    assert.equal(machines.size, MAX_RESETS + 1);
    assert.equal(driver.snapshot.state.phase === "failed" && driver.snapshot.state.reason, "reset_loop");
    assert.equal(world.machinesOf(driver.id).length, 0);
    await world.run(driver.request({ kind: "start" }, FOREVER));
    await resetUntilFailed();
    assert.equal(machines.size, MAX_RESETS + 1, "a start by request counts anew");
  }
});

test("a guest may reboot as often as it likes when it comes up in between: its agent answers, or it runs for a minute", async () => {
  for (const [vm, runsMs] of [
    [{}, 1_000],
    [{ spec: { agent: false } }, SETTLED_MS],
  ] as const) {
    const { world, driver } = await start({ vm });
    for (let i = 0; i < 3 * MAX_RESETS; i += 1) {
      await world.clock.advance(runsMs);
      await world.quiesce();
      world.machinesOf(driver.id)[0]?.endByGuest(RESET);
      await world.quiesce();
      assert.equal(phaseOf(driver), "running");
    }
  }
});

test("a kernel panic is no reboot", async () => {
  const { world, driver, machine } = await start();
  machine.endByGuest({ reason: "guest_panic", message: "The guest's kernel panicked" });
  await world.quiesce();
  assert.equal(driver.snapshot.state.phase === "failed" && driver.snapshot.state.reason, "guest_panic");
  assert.equal(world.machinesOf(driver.id).length, 0);
});

test("a stop asked for during a reboot, at every step of it, wins", async () => {
  const begin = async (): Promise<Awaited<ReturnType<typeof start>> & { readonly first: number }> => {
    const world = await start();
    const first = world.life.faults.steps.length;
    world.machine.endByGuest(RESET);
    return { ...world, first };
  };
  const whole = await begin();
  await whole.world.quiesce();
  const total = whole.life.faults.steps.length - whole.first;
  assert.ok(total > 5);
  for (let at = 0; at <= total; at += 1) {
    const { world, life, driver, first } = await begin();
    while (life.faults.steps.length < first + at) await new Promise((resolve) => setImmediate(resolve));
    await world.run(driver.request(STOP, FOREVER));
    await world.clock.advance(60_000);
    await world.quiesce();
    assert.equal(phaseOf(driver), "stopped", `after step ${at}`);
    assert.equal(world.machinesOf(driver.id).length, 0);
  }
});

test("a reboot whose launch fails leaves the VM failed, with its disk", async () => {
  const { world, driver, machine } = await start({ faults: [{ kind: "fail", step: "backend.launch", occurrence: 2 }] });
  machine.endByGuest(RESET);
  await world.quiesce();
  assert.equal(driver.snapshot.state.phase === "failed" && driver.snapshot.state.reason, "launch_failed");
  assert.ok(world.host.workspaces.get(driver.id)?.files.has("root.qcow2"));
  await world.run(driver.request({ kind: "start" }, FOREVER));
  assert.equal(phaseOf(driver), "running");
});

test("a daemon that dies in a reboot, at any step, is followed by one that runs the VM or says that it failed", async () => {
  const counted = await start();
  const first = counted.life.faults.steps.length;
  counted.machine.endByGuest(RESET);
  await counted.world.quiesce();
  const total = counted.life.faults.steps.length - first;
  for (let at = 1; at <= total; at += 1) {
    for (const kind of ["crash_before", "crash_after"] as const) {
      const { world, driver, machine } = await start({ faults: [{ kind, step: "*", occurrence: first + at }] });
      machine.endByGuest(RESET);
      await world.quiesce();
      const [again] = await world.run(adoptVms(world.incarnate().ports, FOREVER));
      assert.ok(again !== undefined);
      await world.clock.advance(60_000);
      await world.quiesce();
      // Before the first commit nothing on disk says that the machine's end was a reboot.
      const expected = at === 1 && kind === "crash_before" ? "failed" : "running";
      assert.equal(phaseOf(again), expected, `${kind} at ${at}`);
      assert.equal(world.machinesOf(driver.id).length, expected === "running" ? 1 : 0);
    }
  }
});

test("delete leaves nothing, whatever the VM is doing", async () => {
  const states: readonly (readonly [string, (world: SimulatedWorld, driver: VmDriver) => Promise<unknown>])[] = [
    ["running", async () => await Promise.resolve()],
    ["paused", async (world, driver) => await world.run(driver.request({ kind: "pause" }, FOREVER))],
    ["stopped", async (world, driver) => await world.run(driver.request(STOP, FOREVER))],
    ["stopping", async (_, driver) => void driver.request(STOP, FOREVER).catch(() => undefined)],
    ["restarting", async (_, driver) => void driver.request({ kind: "restart", force: true, graceMs: 0 }, FOREVER).catch(() => undefined)],
    ["pausing", async (_, driver) => void driver.request({ kind: "pause" }, FOREVER).catch(() => undefined)],
    ["rebooting", async (world, driver) => await Promise.resolve(world.machinesOf(driver.id)[0]?.endByGuest(RESET))],
  ];
  for (const [name, reach] of states) {
    const { world, driver } = await start();
    await reach(world, driver);
    await world.run(driver.request(DELETE, FOREVER));
    assertNothingLeft(world);
    assert.equal(world.durable.events.at(-1)?.type, "vm.gone", name);
  }
});

test("deleting in the middle of a creation, at every step, leaves nothing", async () => {
  const { life } = await start();
  const total = life.faults.steps.length;
  for (const [at, slow] of Array.from(
    { length: total },
    (_, i) =>
      [
        [i + 1, false],
        [i + 1, true],
      ] as const,
  ).flat()) {
    const world = new SimulatedWorld();
    const own = world.incarnate(slow ? [{ kind: "slow", step: "*", occurrence: at }] : []);
    const creating = createVm(makeNewVm(own.ports), own.ports);
    const created = creating.then(async (driver) => await driver.waitUntil(judgeCreate, FOREVER));
    created.catch(() => undefined);
    while (own.faults.steps.length < at) await new Promise((resolve) => setImmediate(resolve));
    const driver = await world.run(creating);
    await world.run(driver.request(DELETE, FOREVER));
    assertNothingLeft(world);
    const steps = own.faults.steps.length;
    await world.clock.advance(60_000);
    assert.deepEqual(own.faults.steps.slice(steps), [], `once it is gone nothing is done for it any more (step ${at})`);
    assertNothingLeft(world);
  }
});

test("a delete whose steps fail goes on until nothing is left", async () => {
  for (const step of ["process.kill", "backend.list", "egress.remove", "workspaces.remove"]) {
    const world = new SimulatedWorld();
    const life = world.incarnate([1, 2, 3].map((occurrence) => ({ kind: "fail" as const, step, occurrence })));
    const driver = await create(world, life);
    await world.run(driver.request(DELETE, FOREVER));
    assertNothingLeft(world);
  }
});

test("TTL: the VM goes when its time is over, and a step of the wall clock changes nothing", async () => {
  const { world, driver } = await start({ vm: { ttlMs: 600_000 } });
  world.clock.stepWall(7 * 3_600_000);
  await world.clock.advance(590_000);
  await world.quiesce();
  assert.equal(phaseOf(driver), "running");
  world.clock.stepWall(-20 * 3_600_000);
  await world.clock.advance(11_000);
  await world.quiesce();
  assert.equal(phaseOf(driver), "gone");
  assertNothingLeft(world);
  assert.deepEqual(world.durable.events.at(-1)?.data, { from: "deleting", to: "gone", reason: "expired", name: "test" });
});

test("TTL: it can be made longer, shorter and removed", async () => {
  const { world, life, driver } = await start({ vm: { ttlMs: 60_000 } });
  const now = { bootId: life.ports.host.bootId, bootMs: world.clock.bootMs(), wallMs: world.clock.wallMs() };
  const at = (ms: number): { expiresAtWallMs: number; bootId: string; expiresAtBootMs: number } => ({
    expiresAtWallMs: now.wallMs + ms,
    bootId: now.bootId,
    expiresAtBootMs: now.bootMs + ms,
  });
  await world.run(driver.patch(() => ({ deadline: at(3_600_000) })));
  await world.clock.advance(120_000);
  assert.equal(phaseOf(driver), "running");
  await world.run(driver.patch(() => ({ deadline: undefined })));
  await world.clock.advance(10 * 3_600_000);
  assert.equal(phaseOf(driver), "running");
  await world.run(driver.patch(() => ({ deadline: at(1) })));
  await world.run(driver.waitUntil((s) => (s.state.phase === "gone" ? { kind: "done" } : { kind: "pending" }), FOREVER));
  assertNothingLeft(world);
});

test("TTL: it counts while no daemon runs, by the wall clock across a reboot", async () => {
  const { world } = await start({ vm: { ttlMs: 600_000 } });
  world.reboot();
  await world.clock.advance(500_000);
  const [first] = await world.run(adoptVms(world.incarnate().ports, FOREVER));
  assert.equal(first?.snapshot.state.phase === "stopped" && first.snapshot.state.reason, "host_rebooted");
  await world.quiesce();
  world.stopDaemon();
  await world.clock.advance(101_000);
  await world.run(adoptVms(world.incarnate().ports, FOREVER));
  await world.clock.advance(1);
  await world.quiesce();
  assertNothingLeft(world);
});

test("an expired VM whose deletion cannot be stored is deleted later", async () => {
  const world = new SimulatedWorld();
  const life = world.incarnate([4, 5, 6].map((occurrence) => ({ kind: "fail" as const, step: "store.commit", occurrence })));
  const driver = await create(world, life, { ttlMs: 1000 });
  await world.run(driver.waitUntil((s) => (s.state.phase === "gone" ? { kind: "done" } : { kind: "pending" }), FOREVER));
  assertNothingLeft(world);
});

test("a start that fails leaves the VM failed, with its disk, and can be tried again", async () => {
  for (const step of [
    "workspaces.ensure",
    "disks.writeConfigDisk",
    "artifacts.locateKernel",
    "egress.ensure",
    "backend.launch",
    "process.boot",
  ]) {
    const world = new SimulatedWorld();
    const life = world.incarnate([{ kind: "fail", step, occurrence: 2 }]);
    const driver = await create(world, life);
    await world.run(driver.request(STOP, FOREVER));
    await assert.rejects(world.run(driver.request({ kind: "start" }, FOREVER)), hasCode("HOST_TOOL_FAILED"), step);
    await world.quiesce();
    assert.equal(phaseOf(driver), "failed", step);
    assert.equal(world.machinesOf(driver.id).length, 0, step);
    assert.ok(world.host.workspaces.get(driver.id)?.files.has("root.qcow2"), step);
    await world.run(driver.request({ kind: "start" }, FOREVER));
    assert.equal(phaseOf(driver), "running", step);
    assert.equal(world.machinesOf(driver.id).length, 1, step);
  }
});

test("a start never makes a second machine beside one that a failed start left", async () => {
  const world = new SimulatedWorld();
  const life = world.incarnate([
    { kind: "fail_after", step: "backend.launch", occurrence: 2 },
    // The listing that would end what that launch left fails too: the first is the stop's, then the start's own, then this.
    { kind: "fail", step: "backend.list", occurrence: 3 },
  ]);
  const driver = await create(world, life);
  await world.run(driver.request(STOP, FOREVER));
  await assert.rejects(world.run(driver.request({ kind: "start" }, FOREVER)), hasCode("HOST_TOOL_FAILED"));
  assert.equal(world.machinesOf(driver.id).length, 1, "it is left");
  await world.run(driver.request({ kind: "start" }, FOREVER));
  assert.equal(world.machinesOf(driver.id).length, 1);
  assert.equal(world.machinesOf(driver.id)[0]?.status, "running");
});

test("a launched machine whose record cannot be stored never runs", async () => {
  const world = new SimulatedWorld();
  const life = world.incarnate([{ kind: "fail", step: "store.commit", occurrence: 2 }]);
  const driver = await world.run(createVm(makeNewVm(life.ports), life.ports));
  await assert.rejects(world.run(driver.waitUntil(judgeCreate, FOREVER)), hasCode("HOST_TOOL_FAILED"));
  assert.ok(!life.faults.steps.includes("process.boot"));
  assertNothingLeft(world);
});

test("a stop that cannot be stored stops all the same, and is stored later", async () => {
  const world = new SimulatedWorld();
  const life = world.incarnate([4, 5, 6].map((occurrence) => ({ kind: "fail" as const, step: "store.commit", occurrence })));
  const driver = await create(world, life);
  await world.run(driver.request(STOP, FOREVER));
  assert.equal(phaseOf(driver), "stopped");
  await world.clock.advance(10_000);
  await world.quiesce();
  const stored = world.durableRecords("vms")[0]?.value as { state: { phase: string } };
  assert.equal(stored.state.phase, "stopped");
});

test("events of transitions that could not be stored at once are stored with the record later", async () => {
  const world = new SimulatedWorld();
  const life = world.incarnate([4, 5].map((occurrence) => ({ kind: "fail" as const, step: "store.commit", occurrence })));
  const driver = await create(world, life);
  await world.run(driver.request(STOP, FOREVER));
  await world.clock.advance(10_000);
  await world.quiesce();
  assert.deepEqual(
    world.durable.events.map((e) => e.type),
    ["vm.creating", "vm.starting", "vm.running", "vm.stopping", "vm.stopped"],
  );
});

test("what adoption finds out is an event too, with its reason", async () => {
  const { world, machine } = await start();
  world.stopDaemon();
  machine.vanish();
  await world.run(adoptVms(world.incarnate().ports, FOREVER));
  await world.quiesce();
  const last = world.durable.events.at(-1);
  assert.deepEqual(
    [last?.type, last?.data],
    ["vm.failed", { from: "running", to: "failed", reason: "unknown", durationMs: 0, name: "test" }],
  );
});

test("a start that cannot be stored is refused and nothing starts, even if it was stored after all", async () => {
  for (const kind of ["fail", "fail_after"] as const) {
    const world = new SimulatedWorld();
    const life = world.incarnate([{ kind, step: "store.commit", occurrence: 6 }]);
    const driver = await create(world, life);
    await world.run(driver.request(STOP, FOREVER));
    await assert.rejects(world.run(driver.request({ kind: "start" }, FOREVER)), hasCode("HOST_TOOL_FAILED"));
    assert.equal(phaseOf(driver), "stopped");
    await world.clock.advance(10_000);
    await world.quiesce();
    const stored = world.durableRecords("vms")[0]?.value as { state: { phase: string } };
    assert.equal(stored.state.phase, "stopped");
    assert.equal(world.machinesOf(driver.id).length, 0);
  }
});

test("a stop during a creation lets nothing run and loses nothing", async () => {
  const world = new SimulatedWorld();
  const life = world.incarnate();
  const driver = await createVm(makeNewVm(life.ports), life.ports);
  const stopped = driver.request(STOP, FOREVER);
  await world.run(driver.waitUntil(judgeCreate, FOREVER));
  await world.run(stopped);
  assert.equal(phaseOf(driver), "stopped");
  assert.ok(!life.faults.steps.includes("process.boot"));
  await world.run(driver.request({ kind: "start" }, FOREVER));
  assert.equal(phaseOf(driver), "running");
});

test("the mailbox is bounded: the 65th waiting request is told so at once", async () => {
  const { world, driver } = await start({ faults: [{ kind: "hang", step: "store.commit", occurrence: 4 }] });
  const first = driver.request(STOP, FOREVER);
  first.catch(() => undefined);
  await world.quiesce(); // the loop hangs in that commit
  const waiting = Array.from({ length: 64 }, () => driver.request({ kind: "start" }, FOREVER));
  for (const one of waiting) one.catch(() => undefined);
  await assert.rejects(driver.request({ kind: "start" }, FOREVER), hasCode("QUEUE_FULL"));
});

test("a caller that goes away stops waiting; the work goes on", async () => {
  const { world, driver } = await start();
  const controller = new AbortController();
  const stopping = driver.request(STOP, { signal: controller.signal });
  await new Promise((resolve) => setImmediate(resolve));
  controller.abort(new Error("went away"));
  await assert.rejects(stopping, /went away/);
  await world.run(driver.waitUntil((s) => (s.state.phase === "stopped" ? { kind: "done" } : { kind: "pending" }), FOREVER));
});

test("closing lets go: the machine runs on and the next daemon takes it over", async () => {
  const { world, driver, machine } = await start();
  await world.run(driver.close());
  await assert.rejects(driver.request(STOP, FOREVER), hasCode("SHUTTING_DOWN"));
  assert.equal(machine.status, "running");
  const [again] = await world.run(adoptVms(world.incarnate().ports, FOREVER));
  assert.ok(again !== undefined);
  assert.equal(phaseOf(again), "running");
  await world.run(again.requireGuest().waitReady(FOREVER));
  await world.run(again.request(DELETE, FOREVER));
  assertNothingLeft(world);
});

test("rules that somebody took away while no daemon ran are put back for what runs", async () => {
  const { world, driver } = await start();
  world.stopDaemon();
  world.host.egress.clear();
  await world.run(adoptVms(world.incarnate().ports, FOREVER));
  assert.deepEqual([...world.host.egress.keys()], [driver.id]);
});

test("a user id is free again only when it is certain that no record has it", async () => {
  for (const [failures, free] of [
    [[1], true],
    [[1, 2], false],
  ] as const) {
    const world = new SimulatedWorld();
    const life = world.incarnate(failures.map((occurrence) => ({ kind: "fail_after" as const, step: "store.commit", occurrence })));
    let isFree = false;
    const creating = createVm(makeNewVm(life.ports), life.ports, () => {
      isFree = true;
    });
    await assert.rejects(world.run(creating), hasCode("HOST_TOOL_FAILED"));
    assert.equal(isFree, free);
  }
});

test("the agent is disabled, connecting or ready", async () => {
  const { world, driver } = await start();
  assert.equal(driver.snapshot.agent.state, "connecting");
  await world.clock.advance(100);
  await world.quiesce();
  assert.deepEqual(driver.snapshot.agent, { state: "ready", version: "sim" });
  const other = await start({ vm: { spec: { agent: false } } });
  assert.equal(other.driver.snapshot.agent.state, "disabled");
  assert.throws(() => other.driver.requireGuest(), hasCode("AGENT_DISABLED"));
});

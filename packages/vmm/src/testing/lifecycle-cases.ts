/** Launch, boot, pause, end: what every backend does the same. */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { isPlatformError } from "@fluxvm/core";
import type { VmExit, VmProcess } from "../backend.ts";
import type { LaunchPlan } from "../launch-plan.ts";
import { assertNothingLeft, readCount, settled, waitFor, waitForConsole, waitForCount } from "./wait.ts";
import { call, type ConformanceCase, type ConformanceWorld, type GuestScenario } from "./world.ts";

export async function start(
  world: ConformanceWorld,
  scenario: GuestScenario,
  changes: Partial<LaunchPlan> = {},
): Promise<{ readonly plan: LaunchPlan; readonly vm: VmProcess }> {
  const plan = await world.plan(scenario, changes);
  const vm = await world.backend.launch(plan, call());
  await vm.boot(call());
  return { plan, vm };
}

/** Runs a guest that ends by itself and checks the reason and that nothing is left. */
async function expectEnd(
  world: ConformanceWorld,
  how: "poweroff" | "reset" | "crash" | "panic",
  reasons: readonly VmExit["reason"][],
): Promise<void> {
  const { plan, vm } = await start(world, { kind: "end", how, afterMs: 0 });
  const exit = await settled("the end of the guest", vm.exited);
  assert.ok(reasons.includes(exit.reason), `${exit.reason} is none of ${reasons.join(", ")}`);
  assert.equal(world.isAlive(vm.record.pid), false);
  assert.match(await world.readConsole(plan), /bye/);
  await assertNothingLeft(world, plan);
}

export const LIFECYCLE_CASES: readonly ConformanceCase[] = [
  {
    name: "probe tells the version and an accelerator among its own",
    run: async ({ backend }) => {
      const probe = await backend.probe(call());
      assert.ok(probe.usable, probe.usable ? "" : probe.reason);
      assert.match(probe.version, /^\d/);
      assert.ok(backend.capabilities.accelerators.includes(probe.accelerator));
    },
  },
  {
    name: "a launched machine waits for boot",
    run: async (world) => {
      const plan = await world.plan({ kind: "idle" });
      const vm = await world.backend.launch(plan, call());
      assert.equal(await vm.status(call()), "prelaunch");
      await sleep(150); // a guest prints within this time when it runs
      assert.equal(await world.readConsole(plan), "");
      await vm.boot(call());
      await waitForConsole(world, plan, "ready");
      assert.equal(await vm.status(call()), "running");
    },
  },
  {
    name: "the record is JSON that names the process",
    run: async (world) => {
      const { vm } = await start(world, { kind: "idle" });
      assert.deepEqual(JSON.parse(JSON.stringify(vm.record)), vm.record);
      assert.equal(vm.record.backend, world.backend.name);
      assert.ok(world.isAlive(vm.record.pid));
      assert.ok(vm.record.startTimeTicks > 0 && vm.record.pidNamespaceInode > 0 && vm.record.bootId !== "");
      assert.notEqual(vm.record.machine, "");
      assert.ok(world.backend.capabilities.accelerators.includes(vm.record.accelerator));
    },
  },
  { name: "a guest that powers off", run: async (world) => await expectEnd(world, "poweroff", ["guest_shutdown"]) },
  { name: "a guest that resets", run: async (world) => await expectEnd(world, "reset", ["guest_reset"]) },
  { name: "a guest whose processor fails", run: async (world) => await expectEnd(world, "crash", ["guest_reset", "crashed"]) },
  { name: "a guest that panics", run: async (world) => await expectEnd(world, "panic", ["guest_panic"]) },
  {
    name: "a guest that ends at once is not missed",
    run: async (world) => {
      for (let round = 0; round < 3; round += 1) {
        const plan = await world.plan({ kind: "end", how: "poweroff", afterMs: 0 });
        const vm = await world.backend.launch(plan, call());
        const exited = vm.exited;
        await vm.boot(call());
        assert.equal((await settled("the end of the guest", exited)).reason, "guest_shutdown");
      }
    },
  },
  {
    name: "kill ends it at once and leaves nothing",
    run: async (world) => {
      const { plan, vm } = await start(world, { kind: "stubborn" });
      await waitForConsole(world, plan, "ready");
      await vm.kill(call());
      assert.equal(world.isAlive(vm.record.pid), false);
      assert.equal((await settled("exited", vm.exited)).reason, "killed");
      await assertNothingLeft(world, plan);
    },
  },
  {
    name: "kill is idempotent, also at the same time",
    run: async (world) => {
      const { vm } = await start(world, { kind: "idle" });
      await Promise.all([vm.kill(call()), vm.kill(call())]);
      await vm.kill(call());
      assert.equal((await vm.exited).reason, "killed");
    },
  },
  {
    name: "kill before boot leaves nothing",
    run: async (world) => {
      const plan = await world.plan({ kind: "idle" });
      const vm = await world.backend.launch(plan, call());
      await vm.kill(call());
      assert.equal((await vm.exited).reason, "killed");
      assert.equal(await world.readConsole(plan), "");
      await assertNothingLeft(world, plan);
    },
  },
  {
    name: "kill of a guest that has ended keeps the reason",
    run: async (world) => {
      const { vm } = await start(world, { kind: "end", how: "poweroff", afterMs: 0 });
      await settled("the end of the guest", vm.exited);
      await vm.kill(call());
      assert.equal((await vm.exited).reason, "guest_shutdown");
    },
  },
  {
    name: "a process killed from outside is noticed",
    run: async (world) => {
      const { plan, vm } = await start(world, { kind: "idle" });
      await waitForConsole(world, plan, "ready");
      world.killFromOutside(vm.record.pid);
      assert.equal((await settled("exited", vm.exited)).reason, "killed");
      await assertNothingLeft(world, plan);
    },
  },
  {
    name: "pause stops the guest's time and resume goes on",
    run: async (world) => {
      if (!world.backend.capabilities.pause) return await expectUnsupportedPause(world);
      const { plan, vm } = await start(world, { kind: "count", everyMs: 20 });
      await waitForCount(world, plan, 2);
      await vm.pause(call());
      assert.equal(await vm.status(call()), "paused");
      await sleep(100); // what was printed before the pause has arrived
      const count = await readCount(world, plan);
      await sleep(200);
      assert.equal(await readCount(world, plan), count);
      await vm.resume(call());
      assert.equal(await vm.status(call()), "running");
      await waitForCount(world, plan, count);
    },
  },
  {
    name: "pausing or resuming twice changes nothing",
    run: async (world) => {
      if (!world.backend.capabilities.pause) return await expectUnsupportedPause(world);
      const { vm } = await start(world, { kind: "idle" });
      await vm.pause(call());
      await vm.pause(call());
      assert.equal(await vm.status(call()), "paused");
      await vm.resume(call());
      await vm.resume(call());
      assert.equal(await vm.status(call()), "running");
    },
  },
  {
    name: "a paused machine can be killed",
    run: async (world) => {
      if (!world.backend.capabilities.pause) return await expectUnsupportedPause(world);
      const { plan, vm } = await start(world, { kind: "idle" });
      await vm.pause(call());
      await vm.kill(call());
      await assertNothingLeft(world, plan);
    },
  },
  {
    name: "a shutdown request powers the guest off",
    run: async (world) => {
      const { plan, vm } = await start(world, { kind: "idle" });
      await waitForConsole(world, plan, "ready");
      await vm.requestShutdown(call());
      assert.equal((await settled("the end of the guest", vm.exited)).reason, "guest_shutdown");
      await assertNothingLeft(world, plan);
    },
  },
  {
    name: "a guest may ignore the shutdown request",
    run: async (world) => {
      const { plan, vm } = await start(world, { kind: "stubborn" });
      await waitForConsole(world, plan, "ready");
      await vm.requestShutdown(call());
      await sleep(200);
      assert.equal(await vm.status(call()), "running");
      await vm.kill(call());
    },
  },
  {
    name: "stats show memory and growing processor time",
    run: async (world) => {
      const { plan, vm } = await start(world, { kind: "busy" });
      await waitForConsole(world, plan, "ready");
      const before = await vm.stats(call());
      assert.ok(before.memoryBytes > 1024 * 1024, `${before.memoryBytes} bytes`);
      await waitFor("processor time grows", async () => (await vm.stats(call())).cpuTimeMs > before.cpuTimeMs + 50);
    },
  },
  {
    name: "two machines do not touch each other",
    run: async (world) => {
      const [a, b] = await Promise.all([start(world, { kind: "idle" }), start(world, { kind: "count", everyMs: 20 })]);
      await waitForCount(world, b.plan, 1);
      assert.doesNotMatch(await world.readConsole(a.plan), /count/);
      await a.vm.kill(call());
      assert.equal(await b.vm.status(call()), "running");
      await waitForCount(world, b.plan, await readCount(world, b.plan));
      assert.deepEqual((await world.leftovers(b.plan)).length > 0, true);
    },
  },
];

async function expectUnsupportedPause(world: ConformanceWorld): Promise<void> {
  const { vm } = await start(world, { kind: "idle" });
  await assert.rejects(vm.pause(call()), (error) => isPlatformError(error, "BACKEND_UNSUPPORTED"));
}

/** Daemon restarts: adoption, listing, and ending what nobody owns. */
import assert from "node:assert/strict";
import type { VmProcessRecord } from "../backend.ts";
import { start } from "./lifecycle-cases.ts";
import { assertNothingLeft, readCount, settled, waitFor, waitForConsole, waitForCount } from "./wait.ts";
import { call, type ConformanceCase } from "./world.ts";

/** As it comes back from the store. */
function stored(record: VmProcessRecord): VmProcessRecord {
  return JSON.parse(JSON.stringify(record)) as VmProcessRecord; // a record is JSON
}

export const ADOPTION_CASES: readonly ConformanceCase[] = [
  {
    name: "a running machine is adopted and ran on meanwhile",
    run: async (world) => {
      const { plan, vm } = await start(world, { kind: "count", everyMs: 20 });
      await waitForCount(world, plan, 1);
      await world.disconnect();
      await waitForCount(world, plan, await readCount(world, plan));
      const backend = await world.reopen();
      const adopted = await backend.adopt(stored(vm.record), call());
      assert.ok(adopted);
      assert.deepEqual(adopted.record, vm.record);
      assert.equal(await adopted.status(call()), "running");
      await waitForCount(world, plan, await readCount(world, plan));
      await adopted.kill(call());
      assert.equal((await adopted.exited).reason, "killed");
      await assertNothingLeft(world, plan);
    },
  },
  {
    name: "a machine that was not booted yet is adopted and boots",
    run: async (world) => {
      const plan = await world.plan({ kind: "idle" });
      const vm = await world.backend.launch(plan, call());
      const adopted = await (await world.reopen()).adopt(stored(vm.record), call());
      assert.ok(adopted);
      assert.equal(await adopted.status(call()), "prelaunch");
      await adopted.boot(call());
      await waitForConsole(world, plan, "ready");
    },
  },
  {
    name: "an adopted machine still tells how its guest ends",
    run: async (world) => {
      const { plan, vm } = await start(world, { kind: "idle" });
      await waitForConsole(world, plan, "ready");
      const adopted = await (await world.reopen()).adopt(stored(vm.record), call());
      assert.ok(adopted);
      await adopted.requestShutdown(call());
      assert.equal((await settled("the end of the guest", adopted.exited)).reason, "guest_shutdown");
      await assertNothingLeft(world, plan);
    },
  },
  {
    name: "a guest that ended while no daemon was there",
    run: async (world) => {
      const { plan, vm } = await start(world, { kind: "end", how: "poweroff", afterMs: 100 });
      await world.disconnect();
      await waitForConsole(world, plan, "bye");
      const adopted = await (await world.reopen()).adopt(stored(vm.record), call());
      if (adopted !== undefined) {
        const exit = await settled("the end of the guest", adopted.exited);
        assert.ok(["guest_shutdown", "unknown"].includes(exit.reason), exit.reason);
        assert.equal(await adopted.status(call()), "ended");
      }
      await waitFor("the process is gone", () => !world.isAlive(vm.record.pid));
    },
  },
  {
    name: "a process that is gone is not adopted",
    run: async (world) => {
      const { vm } = await start(world, { kind: "idle" });
      await world.disconnect();
      world.killFromOutside(vm.record.pid);
      await waitFor("the process is gone", () => !world.isAlive(vm.record.pid));
      assert.equal(await (await world.reopen()).adopt(stored(vm.record), call()), undefined);
    },
  },
  {
    name: "a process with the same pid that is another one is not adopted, and not touched",
    run: async (world) => {
      const { vm } = await start(world, { kind: "idle" });
      const backend = await world.reopen();
      const { record } = vm;
      assert.equal(await backend.adopt({ ...stored(record), startTimeTicks: record.startTimeTicks - 1 }, call()), undefined);
      assert.equal(await backend.adopt({ ...stored(record), bootId: "00000000-0000-4000-8000-000000000000" }, call()), undefined);
      assert.ok(world.isAlive(record.pid));
      const adopted = await backend.adopt(stored(record), call());
      assert.equal(await adopted?.status(call()), "running");
    },
  },
  {
    name: "list finds the machines of its instance and no others",
    run: async (world) => {
      const a = await start(world, { kind: "idle" });
      const b = await start(world, { kind: "idle" });
      const other = await start(world, { kind: "idle" }, { instanceId: "inst-another0another0" });
      const found = await world.backend.list(a.plan.instanceId, call());
      const expected = [a, b].map(({ plan, vm }) => ({ vmId: plan.vmId, pid: vm.record.pid, startTimeTicks: vm.record.startTimeTicks }));
      const byPid = (x: { readonly pid: number }, y: { readonly pid: number }): number => x.pid - y.pid;
      assert.deepEqual(found.toSorted(byPid), expected.toSorted(byPid));
      assert.deepEqual(
        (await world.backend.list(other.plan.instanceId, call())).map((f) => f.vmId),
        [other.plan.vmId],
      );
      assert.deepEqual(await world.backend.list("inst-nobody", call()), []);
    },
  },
  {
    name: "what list found can be ended, also when it is gone by then",
    run: async (world) => {
      const a = await start(world, { kind: "idle" });
      const b = await start(world, { kind: "idle" });
      const backend = await world.reopen();
      const found = (await backend.list(a.plan.instanceId, call())).find((f) => f.vmId === a.plan.vmId);
      assert.ok(found);
      await backend.destroyFound(found, call());
      assert.equal(world.isAlive(a.vm.record.pid), false);
      assert.ok(world.isAlive(b.vm.record.pid));
      await backend.destroyFound(found, call());
      assert.deepEqual(
        (await backend.list(a.plan.instanceId, call())).map((f) => f.vmId),
        [b.plan.vmId],
      );
    },
  },
];

/** Failures, aborts and bounds. */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { isPlatformError } from "@fluxvm/core";
import type { VmProcess } from "../backend.ts";
import { start } from "./lifecycle-cases.ts";
import { assertNothingLeft, settled, waitForConsole } from "./wait.ts";
import { call, type ConformanceCase } from "./world.ts";

const ABORT_AFTER_MS = [0, 1, 5, 10, 20, 40, 80];

const CALLS: readonly { readonly name: string; run(vm: VmProcess, signal: AbortSignal): Promise<unknown> }[] = [
  { name: "boot", run: async (vm, signal) => await vm.boot({ signal }) },
  { name: "pause", run: async (vm, signal) => await vm.pause({ signal }) },
  { name: "resume", run: async (vm, signal) => await vm.resume({ signal }) },
  { name: "status", run: async (vm, signal) => await vm.status({ signal }) },
  { name: "stats", run: async (vm, signal) => await vm.stats({ signal }) },
  { name: "requestShutdown", run: async (vm, signal) => await vm.requestShutdown({ signal }) },
  { name: "kill", run: async (vm, signal) => await vm.kill({ signal }) },
];

export const FAILURE_CASES: readonly ConformanceCase[] = [
  {
    name: "a launch that fails says why and leaves nothing",
    run: async (world) => {
      const broken = await world.brokenPlans();
      assert.ok(broken.length > 0);
      for (const { what, plan, code } of broken) {
        await assert.rejects(world.backend.launch(plan, call()), (error) => {
          assert.ok(isPlatformError(error), `${what}: ${String(error)}`);
          assert.equal(error.code, code, `${what}: ${error.message}`);
          return true;
        });
        await assertNothingLeft(world, plan);
      }
    },
  },
  {
    name: "a launch aborted before it starts makes nothing",
    run: async (world) => {
      const plan = await world.plan({ kind: "idle" });
      const reason = new Error("no longer wanted");
      await assert.rejects(world.backend.launch(plan, { signal: AbortSignal.abort(reason) }), reason);
      await assertNothingLeft(world, plan);
    },
  },
  {
    name: "a launch aborted at any moment leaves nothing, or a machine",
    run: async (world) => {
      for (const ms of ABORT_AFTER_MS) {
        const plan = await world.plan({ kind: "idle" });
        const controller = new AbortController();
        const launched = world.backend.launch(plan, { signal: controller.signal });
        const reason = new Error("no longer wanted");
        await sleep(ms);
        controller.abort(reason);
        try {
          const vm = await settled("the aborted launch", launched);
          await vm.kill(call());
        } catch (error) {
          assert.equal(error, reason);
        }
        await assertNothingLeft(world, plan);
      }
    },
  },
  {
    name: "an aborted call rejects with the reason and does nothing",
    run: async (world) => {
      const { plan, vm } = await start(world, { kind: "idle" });
      await waitForConsole(world, plan, "ready");
      for (const { name, run } of CALLS) {
        const reason = new Error(`${name} is no longer wanted`);
        await assert.rejects(run(vm, AbortSignal.abort(reason)), reason);
      }
      assert.equal(await vm.status(call()), "running");
      const aborted = { signal: AbortSignal.abort(new Error("no longer wanted")) };
      await assert.rejects(world.backend.list(plan.instanceId, aborted), /no longer wanted/);
    },
  },
  {
    name: "calls on an ended machine reject with VM_EXITED",
    run: async (world) => {
      const { vm } = await start(world, { kind: "end", how: "poweroff", afterMs: 0 });
      await settled("the end of the guest", vm.exited);
      assert.equal(await vm.status(call()), "ended");
      const hasExited = (error: unknown): boolean => isPlatformError(error, "VM_EXITED");
      await assert.rejects(vm.boot(call()), hasExited);
      await assert.rejects(vm.stats(call()), hasExited);
      await assert.rejects(vm.requestShutdown(call()), hasExited);
      if (world.backend.capabilities.pause) {
        await assert.rejects(vm.pause(call()), hasExited);
        await assert.rejects(vm.resume(call()), hasExited);
      }
    },
  },
  {
    name: "a call under way when the machine is killed rejects with VM_EXITED",
    run: async (world) => {
      const { vm } = await start(world, { kind: "idle" });
      const calls = Array.from({ length: 8 }, async () => {
        for (;;) await vm.boot(call());
      });
      const outcomes = Promise.allSettled(calls);
      await vm.kill(call());
      for (const outcome of await settled("calls under way", outcomes)) {
        assert.equal(outcome.status, "rejected");
        assert.ok(isPlatformError(outcome.reason, "VM_EXITED"), String(outcome.reason));
      }
    },
  },
  {
    name: "what the capabilities do not name is refused",
    run: async (world) => {
      const { capabilities } = world.backend;
      const { plan, vm } = await start(world, { kind: "idle" });
      const refused = (error: unknown): boolean => isPlatformError(error, "BACKEND_UNSUPPORTED");
      if (!capabilities.snapshot) await assert.rejects(vm.snapshot({ directory: plan.workspace }, call()), refused);
      if (!capabilities.migrate) await assert.rejects(vm.migrate({ uri: "unix:/nowhere" }, call()), refused);
      if (!capabilities.hotplugCpu) await assert.rejects(vm.update({ kind: "vcpus", count: 2 }, call()), refused);
      if (!capabilities.hotplugMemory) await assert.rejects(vm.update({ kind: "memory", memoryMib: 128 }, call()), refused);
      assert.equal(await vm.status(call()), "running");
    },
  },
  {
    name: "the console log is bounded and keeps the newest lines",
    run: async (world) => {
      const maxBytes = 8192;
      const { plan, vm } = await start(world, { kind: "flood", kib: 64 }, { console: { logPath: "", maxBytes } });
      await waitForConsole(world, plan, "done");
      assert.ok((await world.consoleBytes(plan)) <= 2 * maxBytes, `${await world.consoleBytes(plan)} bytes on disk`);
      assert.equal(await vm.status(call()), "running");
    },
  },
];

/**
 * Every step of every operation goes wrong once, in every way; then the daemon starts again and all must be well.
 * A step is one durable write or one call that changes or reads the host.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import type { Fault } from "@fluxvm/engine/testing";
import { SimulatedWorld } from "@fluxvm/engine/testing";
import {
  assertConsistent,
  assertNothingLeft,
  beginSimulatedDaemon,
  FOREVER,
  makeCreateRequest,
  startSimulatedDaemon,
  type SimulatedDaemon,
} from "./testing/index.ts";
import { createVmManager } from "./vm-manager.ts";

/** One operation on the VM `web`, which exists and runs before, except for `create`. */
const OPERATIONS: Readonly<Record<string, (daemon: SimulatedDaemon) => Promise<unknown>>> = {
  create: async ({ manager }) => await manager.vms.create(makeCreateRequest("web", { cloud_init: { user: "u" } }), FOREVER),
  stop: async ({ manager }) => await manager.vms.stop("web", {}, FOREVER),
  restart: async ({ manager }) => await manager.vms.restart("web", { force: true }, FOREVER),
  pause: async ({ manager }) => await manager.vms.pause("web", FOREVER),
  patch: async ({ manager }) => await manager.vms.patch("web", { name: "www", labels: { a: "b" } }, FOREVER),
  delete: async ({ manager }) => await manager.vms.delete("web", FOREVER),
};

async function startWorld(operation: string, faults: readonly Fault[] = []): Promise<SimulatedDaemon> {
  const world = new SimulatedWorld();
  if (operation !== "create") {
    const first = await startSimulatedDaemon(world);
    await world.run(first.manager.vms.create(makeCreateRequest("web"), FOREVER));
    await world.run(first.manager.close());
  }
  return await startSimulatedDaemon(world, { faults });
}

/** The names of the steps one operation takes, as counted from the daemon's start. */
async function listSteps(operation: string): Promise<readonly { readonly step: string; readonly number: number }[]> {
  const daemon = await startWorld(operation);
  const before = daemon.life.faults.steps.length;
  await daemon.world.run(OPERATIONS[operation]?.(daemon) ?? Promise.reject(new Error(operation)));
  await daemon.world.quiesce();
  return daemon.life.faults.steps.slice(before).map((step, i) => ({ step, number: before + i + 1 }));
}

/** What a caller may be left with: its answer, an error, or silence when the daemon died. */
async function attempt(daemon: SimulatedDaemon, operation: string): Promise<"done" | "failed" | "died"> {
  const work = OPERATIONS[operation]?.(daemon) ?? Promise.reject(new Error(operation));
  const outcome = work.then(
    () => "done" as const,
    (error: unknown) => {
      assert.ok(isPlatformError(error), `an operating error, not ${String(error)}`);
      return "failed" as const;
    },
  );
  const died = new Promise<"died">((resolve) => daemon.life.onCrash(() => resolve("died")));
  return await daemon.world.run(Promise.race([outcome, died]));
}

/** Leaves the world alone until nothing waits for a retry any more. */
async function comeToRest(world: SimulatedWorld): Promise<void> {
  for (let i = 0; i < 12; i += 1) {
    await world.quiesce();
    await world.clock.advance(10_000);
  }
  await world.quiesce();
}

for (const operation of Object.keys(OPERATIONS)) {
  test(`the daemon dies at any step of ${operation}, before or after it took effect: the next one puts all right`, async () => {
    const steps = await listSteps(operation);
    assert.ok(steps.length > 0);
    for (const { step, number } of steps) {
      for (const kind of ["crash_before", "crash_after"] as const) {
        const context = `${operation}, ${kind} ${step} #${number}`;
        const daemon = await startWorld(operation, [{ kind, step: "*", occurrence: number }]);
        const answer = await attempt(daemon, operation);
        const next = await startSimulatedDaemon(daemon.world);
        await comeToRest(daemon.world);
        const views = await next.manager.vms.list({});
        assertConsistent(daemon.world, views, context);
        if (operation !== "create" && operation !== "delete") assert.equal(views.length, 1, `no VM is lost (${context})`);
        if (answer === "done") assert.equal(views.length, operation === "delete" ? 0 : 1, `what was answered is so (${context})`);
        for (const view of views) await daemon.world.run(next.manager.vms.delete(view.id, FOREVER));
        assertNothingLeft(daemon.world, context);
      }
    }
  });

  test(`any step of ${operation} is slow, fails with or without effect, or hangs: the caller is told or it worked, and nothing is lost or left`, async () => {
    for (const { step, number } of await listSteps(operation)) {
      for (const kind of ["slow", "fail", "fail_after", "hang"] as const) {
        const context = `${operation}, ${kind} ${step} #${number}`;
        const daemon = await startWorld(operation, [{ kind, step: "*", occurrence: number }]);
        const { world, manager } = daemon;
        const answer = await attempt(daemon, operation);
        if (operation === "create" && answer === "failed") assertNothingLeft(world, context);
        await comeToRest(world);
        const views = await manager.vms.list({});
        assertConsistent(world, views, context);
        if (operation !== "create" && operation !== "delete") assert.equal(views.length, 1, `no VM is lost (${context})`);
        if (operation === "delete" && answer === "done") assertNothingLeft(world, context);
        for (const view of views) await world.run(manager.vms.delete(view.id, FOREVER));
        assertNothingLeft(world, context);
        await world.run(manager.vms.create(makeCreateRequest("web"), FOREVER)); // the name is free again
      }
    }
  });
}

test("the daemon dies at any step of its own start: the next one puts all right", async () => {
  /** Three VMs in three states, a creation cut off, and leftovers of a VM nobody knows. */
  const makeWorld = async (): Promise<SimulatedWorld> => {
    const world = new SimulatedWorld();
    const { manager, life } = await startSimulatedDaemon(world);
    for (const name of ["running", "paused", "stopped"]) await world.run(manager.vms.create(makeCreateRequest(name), FOREVER));
    await world.run(manager.vms.pause("paused", FOREVER));
    await world.run(manager.vms.stop("stopped", {}, FOREVER));
    const cutOff = manager.vms.create(makeCreateRequest("cut-off"), FOREVER);
    cutOff.catch(() => undefined);
    const launches = life.faults.steps.filter((s) => s === "backend.launch").length;
    while (life.faults.steps.filter((s) => s === "backend.launch").length === launches)
      await new Promise((resolve) => setImmediate(resolve));
    life.crash();
    world.host.workspaces.set("vm-0000000000000000", { owner: { uid: 1, gid: 1 }, files: new Map() });
    world.host.egress.set("vm-0000000000000000", { vmId: "vm-0000000000000000", uid: 1, allowCidrs: [] });
    return world;
  };
  const whole = await startSimulatedDaemon(await makeWorld());
  await comeToRest(whole.world);
  const total = whole.life.faults.steps.length;
  assert.ok(total > 10, `${total} steps`);

  for (let number = 1; number <= total; number += 1) {
    for (const kind of ["crash_before", "crash_after", "fail"] as const) {
      const context = `start, ${kind} #${number}`;
      const world = await makeWorld();
      const { life, ports } = beginSimulatedDaemon(world, { faults: [{ kind, step: "*", occurrence: number }] });
      const started = createVmManager(ports, FOREVER).then(
        () => "started",
        () => "refused",
      );
      await world.run(Promise.race([started, new Promise((resolve) => life.onCrash(() => resolve("died")))]));
      await world.quiesce();
      const next = await startSimulatedDaemon(world);
      await comeToRest(world);
      const views = await next.manager.vms.list({});
      assertConsistent(world, views, context);
      assert.deepEqual(
        views.map((v) => `${v.name} is ${v.state}`).sort(),
        ["paused is paused", "running is running", "stopped is stopped"],
        context,
      );
    }
  }
});

/**
 * Random operations by random clients on a few VMs, while steps fail, daemons die, guests end by themselves and hosts
 * reboot: after each life has been left alone for a while, no VM is lost, doubled or leaked.
 *
 * A failing run names its seed, and the same seed replays the same history. For a long run raise the number of `SEEDS`.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createSeededRandom, isPlatformError, type Random } from "@fluxvm/core";
import type { Fault } from "@fluxvm/engine/testing";
import { SimulatedWorld } from "@fluxvm/engine/testing";
import { assertConsistent, beginSimulatedDaemon, FOREVER, makeCreateRequest, pick, type SimulatedDaemon } from "./testing/index.ts";
import { createVmManager } from "./vm-manager.ts";

const SEEDS = Array.from({ length: 40 }, (_, i) => i + 1);
const LIVES = 4;
const NAMES = ["a", "b", "c", "d"];
const FAULT_KINDS = ["slow", "fail", "fail_after", "hang", "crash_before", "crash_after"] as const;

/** What callers have been promised: names they were told exist, and names whose deletion they asked for. */
interface Promises {
  readonly kept: Set<string>;
  readonly doubtful: Set<string>;
}

function chooseFaults(random: Random): Fault[] {
  return Array.from({ length: pick(random, 4) }, () => ({
    kind: FAULT_KINDS[pick(random, FAULT_KINDS.length)] ?? "fail",
    step: "*",
    occurrence: 1 + pick(random, 150),
  }));
}

type Operation = (daemon: SimulatedDaemon, name: string, promises: Promises) => Promise<void>;

const create: Operation = async ({ manager }, name, { kept, doubtful }) => {
  await manager.vms.create(makeCreateRequest(name, { labels: { n: name } }), FOREVER);
  if (!doubtful.has(name)) kept.add(name);
};
const remove: Operation = async ({ manager }, name, { kept, doubtful }) => {
  kept.delete(name);
  doubtful.add(name);
  await manager.vms.delete(name, FOREVER);
  assert.ok(!(await manager.vms.list({ name })).some((v) => v.state !== "creating" && v.state !== "starting" && kept.has(name)));
};
const OPERATIONS: readonly Operation[] = [
  create,
  create,
  create,
  async ({ manager }, name) => void (await manager.vms.start(name, FOREVER)),
  async ({ manager }, name) => void (await manager.vms.stop(name, { timeout_seconds: 2 }, FOREVER)),
  async ({ manager }, name) => void (await manager.vms.stop(name, { force: true }, FOREVER)),
  async ({ manager }, name) => void (await manager.vms.restart(name, { timeout_seconds: 1 }, FOREVER)),
  async ({ manager }, name) => void (await manager.vms.pause(name, FOREVER)),
  async ({ manager }, name) => void (await manager.vms.resume(name, FOREVER)),
  async ({ manager }, name) => void (await manager.vms.patch(name, { labels: { x: "y" } }, FOREVER)),
  remove,
  async ({ world }, _name) => {
    const machine = [...world.host.machines.values()][0];
    await Promise.resolve();
    machine?.endByGuest({ reason: "guest_shutdown" });
  },
  async ({ world }, _name) => {
    const machine = [...world.host.machines.values()][1];
    await Promise.resolve();
    machine?.endByGuest({ reason: "guest_reset" });
  },
  async ({ world }, _name) => {
    const machine = [...world.host.machines.values()].at(-1);
    await Promise.resolve();
    machine?.vanish({ reason: "crashed", message: "gone" });
  },
];

/** One daemon's life with concurrent callers. Every call ends in an answer, an operating error, or with the daemon. */
async function live(daemon: SimulatedDaemon, random: Random, promises: Promises): Promise<void> {
  const { world, life } = daemon;
  const died = new Promise<void>((resolve) => life.onCrash(resolve));
  const calls: Promise<void>[] = [];
  for (let i = 0; i < 24 && !life.isDead; i += 1) {
    const operation = OPERATIONS[pick(random, OPERATIONS.length)] ?? create;
    const name = NAMES[pick(random, NAMES.length)] ?? "a";
    const call = operation(daemon, name, promises).catch((error: unknown) =>
      assert.ok(isPlatformError(error), `operating error, not ${String(error)}`),
    );
    calls.push(call);
    const turns = pick(random, 12);
    for (let turn = 0; turn < turns; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    if (pick(random, 3) === 0) await world.clock.advance(pick(random, 3000));
  }
  await world.run(Promise.race([Promise.all(calls), died]));
}

async function rest(world: SimulatedWorld): Promise<void> {
  for (let i = 0; i < 15; i += 1) {
    await world.quiesce();
    await world.clock.advance(10_000);
  }
  await world.quiesce();
}

async function runSeed(seed: number): Promise<void> {
  const random = createSeededRandom(seed);
  const world = new SimulatedWorld({ seed });
  const promises: Promises = { kept: new Set(), doubtful: new Set() };
  for (let number = 1; number <= LIVES; number += 1) {
    const context = `seed ${seed}, life ${number}`;
    if (pick(random, 4) === 0) world.reboot(number + 1);
    const { life, ports } = beginSimulatedDaemon(world, { faults: number === LIVES ? [] : chooseFaults(random) });
    const begun = createVmManager(ports, FOREVER).catch((error: unknown) => {
      assert.ok(isPlatformError(error), `operating error, not ${String(error)}`);
      return undefined;
    });
    const manager = await world.run(Promise.race([begun, new Promise<undefined>((resolve) => life.onCrash(() => resolve(undefined)))]));
    if (manager === undefined) continue; // this daemon did not get far
    await live({ world, life, manager, ports }, random, promises);
    await rest(world);
    if (life.isDead) continue;
    const views = await manager.vms.list({});
    assertConsistent(world, views, context);
    for (const name of promises.kept)
      assert.ok(
        views.some((v) => v.name === name),
        `${name} is lost (${context})`,
      );
    promises.doubtful.clear();
    if (pick(random, 2) === 0) await world.run(manager.close());
  }
}

test(`no VM is lost, doubled or leaked in ${SEEDS.length} random histories of ${LIVES} daemons each`, async () => {
  for (const seed of SEEDS) {
    try {
      await runSeed(seed);
    } catch (error) {
      throw new Error(`seed ${seed} fails`, { cause: error });
    }
  }
});

test("the same seed replays the same history", async () => {
  const run = async (): Promise<string> => {
    const world = new SimulatedWorld({ seed: 7 });
    const random = createSeededRandom(7);
    const { life, ports } = beginSimulatedDaemon(world);
    const manager = await world.run(createVmManager(ports, FOREVER));
    await live({ world, life, manager, ports }, random, { kept: new Set(), doubtful: new Set() });
    await rest(world);
    return JSON.stringify([life.faults.steps, life.transitions, world.durable]);
  };
  assert.equal(await run(), await run());
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import { settleAll } from "./settle-all.ts";
import { Slots } from "./slots.ts";

const SIGNAL = new AbortController().signal;

test("at most so many at once, the rest in order", async () => {
  const slots = new Slots({ what: "things", count: 2, maxWaiting: 10 });
  const began: number[] = [];
  const gates = Array.from({ length: 5 }, () => Promise.withResolvers<void>());
  const all = gates.map(async (gate, i) => {
    await slots.run(SIGNAL, async () => {
      began.push(i);
      await gate.promise;
    });
  });
  const turn = async (): Promise<void> => await new Promise((resolve) => setImmediate(resolve));
  await turn();
  assert.deepEqual(began, [0, 1]);
  gates[1]?.resolve();
  await turn();
  assert.deepEqual(began, [0, 1, 2]);
  for (const gate of gates) gate.resolve();
  await Promise.all(all);
  assert.deepEqual(began, [0, 1, 2, 3, 4]);
});

test("a full queue refuses, one that gives up leaves its place, a failure frees its slot", async () => {
  const slots = new Slots({ what: "things", count: 1, maxWaiting: 1 });
  const gate = Promise.withResolvers<void>();
  const first = slots.run(SIGNAL, async () => await gate.promise);
  const controller = new AbortController();
  const waiting = slots.run(controller.signal, async () => await Promise.resolve());
  await assert.rejects(
    slots.run(SIGNAL, async () => await Promise.resolve()),
    (e) => isPlatformError(e, "QUEUE_FULL"),
  );
  controller.abort(new Error("gave up"));
  await assert.rejects(waiting, /gave up/);
  const last = slots.run(SIGNAL, async () => await Promise.reject(new Error("broken")));
  gate.resolve();
  await first;
  await assert.rejects(last, /broken/);
  assert.equal(await slots.run(SIGNAL, async () => await Promise.resolve("free")), "free");
});

test("settleAll waits for everything, then throws the first failure in order", async () => {
  let done = false;
  const slow = new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
    done = true;
  });
  await assert.rejects(settleAll([Promise.reject(new Error("a")), slow, Promise.reject(new Error("b"))]), /^Error: a$/);
  assert.equal(done, true);
  assert.deepEqual(await settleAll([Promise.resolve(1), Promise.resolve("x")]), [1, "x"]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isPlatformError } from "./errors/platform-error.ts";
import { KeyedQueue } from "./keyed-queue.ts";
import { settle } from "./testing/index.ts";

interface Gate {
  readonly wait: Promise<void>;
  readonly open: () => void;
}

function makeGate(): Gate {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { wait: promise, open: resolve };
}

test("tasks of one key wait for each other, of another key they do not", async () => {
  const queue = new KeyedQueue({ boundPerKey: 10 });
  const gate = makeGate();
  const order: string[] = [];
  const first = queue.run("a", async () => {
    await gate.wait;
    order.push("a1");
  });
  const second = queue.run("a", async () => void order.push("a2"));
  await queue.run("b", async () => void order.push("b1"));
  assert.deepEqual(order, ["b1"]);
  gate.open();
  await Promise.all([first, second]);
  assert.deepEqual(order, ["b1", "a1", "a2"]);
});

test("a failing task fails alone", async () => {
  const queue = new KeyedQueue({ boundPerKey: 10 });
  const failing = assert.rejects(
    queue.run("a", async () => await Promise.reject(new Error("no"))),
    /no/,
  );
  assert.equal(await queue.run("a", async () => 3), 3);
  await failing;
});

test("a full key refuses, and only that key", async () => {
  const queue = new KeyedQueue({ boundPerKey: 1 });
  const gate = makeGate();
  const held = queue.run("a", async () => await gate.wait);
  await assert.rejects(
    queue.run("a", async () => undefined),
    (e) => isPlatformError(e, "QUEUE_FULL"),
  );
  assert.equal(await queue.run("b", async () => 1), 1);
  gate.open();
  await held;
  assert.equal(await queue.run("a", async () => 2), 2);
});

test("at no time do two tasks of a key run, and all run", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(fc.constantFrom("a", "b", "c"), fc.nat(3)), { maxLength: 30 }), async (jobs) => {
      const queue = new KeyedQueue({ boundPerKey: 100 });
      const running = new Map<string, number>();
      let done = 0;
      const work = jobs.map(async ([key, rounds]) => {
        await queue.run(key, async () => {
          running.set(key, (running.get(key) ?? 0) + 1);
          assert.equal(running.get(key), 1);
          for (let i = 0; i < rounds; i += 1) await Promise.resolve();
          running.set(key, 0);
          done += 1;
        });
      });
      await Promise.all(work);
      await settle(1);
      assert.equal(done, jobs.length);
    }),
    { numRuns: 50 },
  );
});

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { createSeededRandom } from "./random.ts";
import { computeBackoffMs, retry, type RetryOptions } from "./retry.ts";
import { ManualClock, settle } from "./testing/index.ts";

const makeOptions = (clock: ManualClock, more: Partial<RetryOptions> = {}): RetryOptions => ({
  clock,
  random: createSeededRandom(1),
  attempts: 3,
  firstDelayMs: 100,
  maxDelayMs: 1000,
  shouldRetry: () => true,
  ...more,
});

async function drive<T>(clock: ManualClock, work: Promise<T>): Promise<T> {
  let ended = false;
  void work.then(
    () => (ended = true),
    () => (ended = true),
  );
  for (let i = 0; i < 100 && !ended; i += 1) await clock.advance(1000);
  return await work;
}

test("it tries again until it works, and says which attempt it is", async () => {
  const clock = new ManualClock();
  const attempts: number[] = [];
  const work = retry(makeOptions(clock), async (attempt) => {
    attempts.push(attempt);
    if (attempt < 3) throw new Error("not yet");
    return "done";
  });
  assert.equal(await drive(clock, work), "done");
  assert.deepEqual(attempts, [1, 2, 3]);
});

test("after the last attempt the last error comes out", async () => {
  const clock = new ManualClock();
  let count = 0;
  const work = retry(makeOptions(clock), async () => await Promise.reject(new Error(`failure ${(count += 1)}`)));
  await assert.rejects(drive(clock, work), /failure 3/);
});

test("what is not worth a retry comes out at once", async () => {
  const clock = new ManualClock();
  let count = 0;
  const work = retry(makeOptions(clock, { shouldRetry: () => false }), async () => {
    count += 1;
    throw new Error("final");
  });
  await assert.rejects(work, /final/);
  assert.equal(count, 1);
});

test("an abort ends the wait between attempts", async () => {
  const clock = new ManualClock();
  const controller = new AbortController();
  const work = retry(makeOptions(clock, { signal: controller.signal }), async () => await Promise.reject(new Error("no")));
  const outcome = assert.rejects(work, /stopped/);
  await settle();
  controller.abort(new Error("stopped"));
  await outcome;
  assert.equal(clock.pendingTimers, 0);
});

test("delays stay between nothing and the doubled, capped bound", () => {
  fc.assert(
    fc.property(fc.integer(), fc.integer({ min: 1, max: 60 }), (seed, attempt) => {
      const delay = computeBackoffMs(attempt, { firstDelayMs: 100, maxDelayMs: 30_000, random: createSeededRandom(seed) });
      assert.ok(delay >= 0 && delay <= Math.min(30_000, 100 * 2 ** (attempt - 1)), String(delay));
    }),
  );
});

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ManualClock, settle } from "./manual-clock.ts";

test("timers fire in order of time, then of making, with the clock at their time", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(100), { maxLength: 12 }), async (delays) => {
      const clock = new ManualClock({ bootMs: 0 });
      const fired: { index: number; atMs: number }[] = [];
      delays.forEach((ms, index) => clock.schedule(ms, () => void fired.push({ index, atMs: clock.bootMs() })));
      await clock.advance(100);
      const expected = delays.map((ms, index) => ({ index, atMs: ms })).sort((a, b) => a.atMs - b.atMs || a.index - b.index);
      assert.deepEqual(fired, expected);
      assert.equal(clock.bootMs(), 100);
    }),
    { numRuns: 30 },
  );
});

test("a cancelled timer never fires", async () => {
  const clock = new ManualClock();
  let fired = false;
  const cancel = clock.schedule(5, () => (fired = true));
  cancel();
  await clock.advance(10);
  assert.equal(fired, false);
});

test("a step of the wall clock moves no deadline", async () => {
  const clock = new ManualClock({ wallMs: 1000, bootMs: 0 });
  let fired = false;
  clock.schedule(100, () => (fired = true));
  clock.stepWall(3_600_000);
  await settle();
  assert.deepEqual([clock.wallMs(), clock.bootMs(), fired], [3_601_000, 0, false]);
});

test("sleep ends in time or with the signal's reason", async () => {
  const clock = new ManualClock();
  const slept = clock.sleep(10);
  await clock.advance(10);
  await slept;
  const controller = new AbortController();
  const outcome = assert.rejects(clock.sleep(10, { signal: controller.signal }), /stop/);
  controller.abort(new Error("stop"));
  await outcome;
  await assert.rejects(clock.sleep(1, { signal: controller.signal }), /stop/);
  assert.equal(clock.pendingTimers, 0);
});

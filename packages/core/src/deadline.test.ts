import assert from "node:assert/strict";
import { test } from "node:test";
import { abortable, withDeadline } from "./deadline.ts";
import { isPlatformError } from "./errors/platform-error.ts";
import { ManualClock, settle } from "./testing/index.ts";

const never = async (): Promise<never> => await new Promise<never>(() => undefined);

test("work that ends in time gives its result and leaves no timer", async () => {
  const clock = new ManualClock();
  assert.equal(await withDeadline({ clock, timeoutMs: 100, what: "x" }, async () => 5), 5);
  assert.equal(clock.pendingTimers, 0);
});

test("work that ignores its signal is cut off at the deadline", async () => {
  const clock = new ManualClock();
  const running = withDeadline({ clock, timeoutMs: 500, what: "wait for agent", code: "AGENT_UNREACHABLE" }, never);
  const outcome = assert.rejects(
    running,
    (e) => isPlatformError(e, "AGENT_UNREACHABLE") && e.message === "Timed out after 500 ms: wait for agent",
  );
  await clock.advance(499);
  assert.equal(clock.pendingTimers, 1);
  await clock.advance(1);
  await outcome;
});

test("the deadline's error wins over the error that work makes of the abort", async () => {
  const clock = new ManualClock();
  const running = withDeadline({ clock, timeoutMs: 5, what: "x" }, async (signal) => {
    await new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("socket closed"))));
  });
  const outcome = assert.rejects(running, (e) => isPlatformError(e, "DEADLINE_EXCEEDED"));
  await clock.advance(5);
  await outcome;
});

test("the caller's abort comes through with its own reason", async () => {
  const clock = new ManualClock();
  const controller = new AbortController();
  const reason = new Error("client left");
  let inner: AbortSignal | undefined;
  const running = withDeadline({ clock, timeoutMs: 5, what: "x", signal: controller.signal }, async (signal) => {
    inner = signal;
    return await never();
  });
  const outcome = assert.rejects(running, reason);
  controller.abort(reason);
  await outcome;
  assert.equal(inner?.aborted, true);
  assert.equal(clock.pendingTimers, 0);
});

test("an already aborted caller starts no work", async () => {
  const clock = new ManualClock();
  let started = false;
  const work = withDeadline({ clock, timeoutMs: 5, what: "x", signal: AbortSignal.abort(new Error("gone")) }, async () => {
    started = true;
  });
  await assert.rejects(work, /gone/);
  assert.equal(started, false);
  assert.equal(clock.pendingTimers, 0);
});

test("work that throws, at once or later, gives its own error", async () => {
  const clock = new ManualClock();
  await assert.rejects(
    withDeadline({ clock, timeoutMs: 5, what: "x" }, () => {
      throw new Error("at once");
    }),
    /at once/,
  );
  await assert.rejects(
    withDeadline({ clock, timeoutMs: 5, what: "x" }, async () => await Promise.reject(new Error("later"))),
    /later/,
  );
  assert.equal(clock.pendingTimers, 0);
});

test("abortable passes results through and rejects with the reason", async () => {
  assert.equal(await abortable(Promise.resolve(1), undefined), 1);
  const controller = new AbortController();
  assert.equal(await abortable(Promise.resolve(2), controller.signal), 2);
  const outcome = assert.rejects(abortable(never(), controller.signal), /enough/);
  controller.abort(new Error("enough"));
  await outcome;
});

test("a promise that fails after its waiter gave up is nobody's unhandled rejection", async () => {
  const unhandled: unknown[] = [];
  const listen = (error: unknown): void => void unhandled.push(error);
  process.on("unhandledRejection", listen);
  try {
    const failing = new Promise<never>((_, reject) => setImmediate(() => reject(new Error("late"))));
    await assert.rejects(abortable(failing, AbortSignal.abort(new Error("gone"))), /gone/);
    await settle();
  } finally {
    process.off("unhandledRejection", listen);
  }
  assert.deepEqual(unhandled, []);
});

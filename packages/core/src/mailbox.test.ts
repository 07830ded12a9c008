import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { AssertionError } from "./assert.ts";
import { isPlatformError } from "./errors/platform-error.ts";
import { Mailbox } from "./mailbox.ts";

const make = (bound: number): Mailbox<number> => new Mailbox<number>({ name: "vm-1", bound });

test("the message past the bound is refused with QUEUE_FULL, and a taken one makes room", async () => {
  const box = make(2);
  box.post(1);
  box.post(2);
  assert.throws(
    () => box.post(3),
    (e) => isPlatformError(e, "QUEUE_FULL") && e.class === "throttled" && e.retryAfterMs !== undefined,
  );
  assert.equal(await box.take(), 1);
  assert.equal(box.post(3), true);
  assert.equal(box.size, 2);
});

test("an event that must not be lost goes past the bound, in order", async () => {
  const box = make(1);
  box.post(1);
  assert.equal(box.postUnbounded(2), true);
  assert.deepEqual([await box.take(), await box.take()], [1, 2]);
});

test("a waiting reader gets the next message at once", async () => {
  for (const post of ["post", "postUnbounded"] as const) {
    const box = make(1);
    const taken = box.take();
    box[post](7);
    assert.equal(await taken, 7);
    assert.equal(box.size, 0);
  }
});

test("a closed mailbox drains, then ends, and tells senders", async () => {
  const box = make(3);
  box.post(1);
  box.close();
  assert.equal(box.post(2), false);
  assert.equal(box.postUnbounded(3), false);
  assert.equal(await box.take(), 1);
  assert.equal(await box.take(), undefined);
});

test("closing wakes a waiting reader", async () => {
  const box = make(1);
  const taken = box.take();
  box.close();
  assert.equal(await taken, undefined);
});

test("a second reader is a bug of ours and is told so", async () => {
  const box = make(1);
  const first = box.take();
  await assert.rejects(box.take(), AssertionError);
  box.close();
  await first;
});

test("whatever the order of posts and takes, messages come out once and in order", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.constantFrom("post", "take"), { maxLength: 60 }), async (steps) => {
      const box = make(1000);
      const taken: Promise<number | undefined>[] = [];
      let posted = 0;
      let reader: Promise<unknown> = Promise.resolve();
      for (const step of steps) {
        if (step === "post") box.post(posted++);
        else {
          const next = reader.then(async () => await box.take());
          taken.push(next);
          reader = next;
        }
      }
      await Promise.resolve();
      box.close();
      const got = (await Promise.all(taken)).filter((m) => m !== undefined);
      for (let m = await box.take(); m !== undefined; m = await box.take()) got.push(m);
      assert.deepEqual(
        got,
        Array.from({ length: posted }, (_, i) => i),
      );
    }),
  );
});

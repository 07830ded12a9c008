import assert from "node:assert/strict";
import { test } from "node:test";
import { settle } from "@fluxvm/core/testing";
import { isPlatformError } from "@fluxvm/contracts";
import fc from "fast-check";
import { StdinWindow } from "./stdin-window.ts";

test("a writer waits while the window is full and goes on as bytes are confirmed", async () => {
  const window = new StdinWindow(4);
  assert.equal(await window.push(Buffer.from("abcdef")), 4);
  window.attach(0);
  let taken: number | undefined;
  const waiting = window.push(Buffer.from("ef")).then((count) => (taken = count));
  await settle();
  assert.equal(taken, undefined);
  window.ack(1);
  assert.equal(await waiting, 1);
  assert.deepEqual(
    window.from(1).map((chunk) => [chunk.offset, chunk.data.toString()]),
    [
      [1, "bcd"],
      [4, "e"],
    ],
  );
});

test("input begins where the first attach says, since another client may have written before", async () => {
  const window = new StdinWindow();
  await window.push(Buffer.from("xyz"));
  assert.equal(window.endOffset, undefined);
  window.end();
  window.attach(100);
  assert.deepEqual([window.from(0)[0]?.offset, window.endOffset], [100, 103]);
});

test("the caller's buffer may be used again", async () => {
  const window = new StdinWindow();
  const data = Buffer.from("abc");
  await window.push(data);
  data.fill(0);
  window.attach(0);
  assert.equal(window.from(0)[0]?.data.toString(), "abc");
});

test("a guest that forgets confirmed bytes or confirms unwritten ones is found out", async () => {
  const window = new StdinWindow();
  await window.push(Buffer.from("abc"));
  window.attach(0);
  window.ack(2);
  assert.throws(
    () => window.attach(1),
    (error) => isPlatformError(error, "DAEMON_PROTOCOL"),
  );
  assert.throws(
    () => window.ack(4),
    (error) => isPlatformError(error, "DAEMON_PROTOCOL"),
  );
});

test("writing after the end is refused; closing wakes writers with nothing taken", async () => {
  const ended = new StdinWindow();
  ended.end();
  await assert.rejects(ended.push(Buffer.from("x")), (error) => isPlatformError(error, "EXEC_STDIN_ENDED"));
  const full = new StdinWindow(1);
  await full.push(Buffer.from("x"));
  const waiting = full.push(Buffer.from("y"));
  full.close();
  assert.equal(await waiting, 0);
});

test("whatever is confirmed and whenever it breaks, the guest gets every byte once and in order", async () => {
  const step = fc.oneof(
    fc.record({ push: fc.uint8Array({ minLength: 1, maxLength: 20 }) }),
    fc.record({ deliver: fc.nat(30), confirm: fc.boolean() }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const window = new StdinWindow(1000);
      const written: number[] = [];
      const guest: number[] = [];
      window.attach(0);
      for (const what of steps) {
        if ("push" in what) {
          written.push(...what.push.subarray(0, await window.push(what.push.subarray(0, 1000 - window.size))));
          continue;
        }
        // A new connection: the guest says how much it has and takes up to `deliver` bytes before it breaks again.
        let room = what.deliver;
        for (const chunk of window.from(window.attach(guest.length))) {
          assert.ok(chunk.offset <= guest.length, "a gap");
          const fresh = chunk.data.subarray(guest.length - chunk.offset).subarray(0, room);
          room -= fresh.length;
          guest.push(...fresh);
          if (room === 0) break;
        }
        if (what.confirm) window.ack(guest.length);
      }
      assert.deepEqual(guest, written.slice(0, guest.length));
      for (const chunk of window.from(window.attach(guest.length))) guest.push(...chunk.data);
      assert.deepEqual(guest, written);
    }),
    { numRuns: 200 },
  );
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { settle } from "@fluxvm/core/testing";
import { OutputQueue } from "./output-queue.ts";

const chunk = (text: string): { stream: "stdout"; offset: number; data: Buffer } => ({
  stream: "stdout",
  offset: 0,
  data: Buffer.from(text),
});

test("chunks come in order, then the end", async () => {
  const queue = new OutputQueue();
  const first = queue.take();
  queue.put(chunk("a"));
  queue.put(chunk(""));
  queue.put(chunk("bc"));
  queue.end();
  queue.put(chunk("too late"));
  assert.equal((await first)?.data.toString(), "a");
  assert.equal(queue.size, 2);
  assert.equal((await queue.take())?.data.toString(), "bc");
  assert.equal(await queue.take(), undefined);
  assert.equal(await queue.take(), undefined);
});

test("what is queued is read before the error it ended with", async () => {
  const queue = new OutputQueue();
  queue.put(chunk("a"));
  queue.end(new Error("broken"));
  queue.end(new Error("second"));
  assert.equal((await queue.take())?.data.toString(), "a");
  await assert.rejects(queue.take(), /broken/);
});

test("draining below a mark wakes who waits for it, and so does the end", async () => {
  const queue = new OutputQueue();
  queue.put(chunk("abcd"));
  queue.put(chunk("ef"));
  let woken = false;
  const waiting = queue.waitBelow(3).then(() => (woken = true));
  await settle();
  assert.equal(woken, false);
  await queue.take();
  await waiting;
  const atEnd = queue.waitBelow(1);
  queue.end();
  await atEnd;
});

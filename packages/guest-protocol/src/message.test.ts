import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { ChannelStream } from "@fluxvm/guest-channel";
import { encodeMessage, encodeOffset, MAX_MESSAGE_BYTES, MESSAGE_KIND, MessageReader, splitOffset } from "./message.ts";

/** A stream that gives these chunks and ends. */
function streamOf(chunks: readonly Uint8Array[]): ChannelStream {
  const left = [...chunks];
  return { read: async () => left.shift() } as unknown as ChannelStream; // the reader calls nothing else
}

async function readAll(chunks: readonly Uint8Array[]): Promise<{ kind: number; body: string }[]> {
  const reader = new MessageReader(streamOf(chunks));
  const seen = [];
  for (let message = await reader.next(); message !== undefined; message = await reader.next())
    seen.push({ kind: message.kind, body: message.body.toString("hex") });
  return seen;
}

test("any messages come out as they went in, whatever the chunks", async () => {
  const message = fc.record({ kind: fc.nat(255), body: fc.uint8Array({ maxLength: 300 }) });
  await fc.assert(
    fc.asyncProperty(fc.array(message, { maxLength: 8 }), fc.integer({ min: 1, max: 100 }), async (messages, size) => {
      const wire = Buffer.concat(messages.map((m) => encodeMessage(m.kind, m.body)));
      const chunks = [];
      for (let at = 0; at < wire.length; at += size) chunks.push(wire.subarray(at, at + size));
      assert.deepEqual(
        await readAll(chunks),
        messages.map((m) => ({ kind: m.kind, body: Buffer.from(m.body).toString("hex") })),
      );
    }),
  );
});

test("a message that is too long or cut off is a violation", async () => {
  const long = Buffer.alloc(5);
  long.writeUInt32LE(MAX_MESSAGE_BYTES + 1, 0);
  await assert.rejects(readAll([long]), { code: "AGENT_PROTOCOL" });
  await assert.rejects(readAll([encodeMessage(0, Buffer.from("abc")).subarray(0, 6)]), { code: "AGENT_PROTOCOL" });
  await assert.rejects(readAll([Buffer.from([1, 0])]), { code: "AGENT_PROTOCOL" });
});

test("offsets are those of a number, or refused", () => {
  const wire = encodeOffset(MESSAGE_KIND.stdout, 2 ** 40 + 3, Buffer.from("abc"));
  assert.deepEqual(splitOffset(wire.subarray(5)), { offset: 2 ** 40 + 3, bytes: Buffer.from("abc") });
  assert.throws(() => splitOffset(Buffer.alloc(7)), { code: "AGENT_PROTOCOL" });
  assert.throws(() => splitOffset(Buffer.alloc(8, 0xff)), { code: "AGENT_PROTOCOL" });
});

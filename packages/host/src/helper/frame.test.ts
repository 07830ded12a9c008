import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { encodeFrame, FrameDecoder, MAX_FRAME_BYTES } from "./frame.ts";

test("messages come back whole, however the bytes are cut", () => {
  const message = fc.oneof(fc.string(), fc.integer(), fc.dictionary(fc.string(), fc.string()));
  fc.assert(
    fc.property(fc.array(message, { maxLength: 8 }), fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }), (messages, cuts) => {
      const bytes = Buffer.concat(messages.map((m) => encodeFrame(m)));
      const decoder = new FrameDecoder();
      const got: unknown[] = [];
      for (let at = 0, i = 0; at < bytes.length; i += 1) {
        const size = cuts[i % cuts.length] ?? 1;
        got.push(...decoder.push(bytes.subarray(at, at + size)));
        at += size;
      }
      assert.deepEqual(got, structuredClone(messages.map((m) => JSON.parse(JSON.stringify(m)) as unknown)));
    }),
  );
});

test("an absurd length and rubbish are refused", () => {
  const header = Buffer.alloc(4);
  header.writeUInt32LE(MAX_FRAME_BYTES + 1);
  assert.throws(() => new FrameDecoder().push(header), /frame of/);
  assert.throws(() => new FrameDecoder().push(Buffer.from([1, 0, 0, 0, 0x7b])), SyntaxError);
});

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import fc from "fast-check";
import { encodeFrame, FRAME_HEADER_BYTES, FRAME_TYPE, FrameReader, MAX_FRAME_PAYLOAD_BYTES, type Frame } from "./frame.ts";

interface Fixture {
  readonly name: string;
  readonly type: number;
  readonly epoch: number;
  readonly stream: number;
  readonly offset: number;
  readonly payloadHex: string;
  readonly wireHex: string;
}

const FIXTURES = JSON.parse(readFileSync(new URL("../fixtures/frames.json", import.meta.url), "utf8")) as readonly Fixture[]; // our own file
const HUNT = [FRAME_TYPE.welcome];

function frame(type: number, payload: Uint8Array = new Uint8Array(0), stream = 1): Frame {
  return { type, epoch: 7, stream, offset: 9, payload };
}

function drain(reader: FrameReader): Frame[] {
  const frames = [];
  for (let next = reader.next(); next !== undefined; next = reader.next()) frames.push({ ...next, payload: Uint8Array.from(next.payload) });
  return frames;
}

for (const fixture of FIXTURES) {
  test(`agrees with the guest's codec: ${fixture.name}`, () => {
    const { type, epoch, stream, offset } = fixture;
    const expected = { type, epoch, stream, offset, payload: Buffer.from(fixture.payloadHex, "hex") };
    const wire = Buffer.from(fixture.wireHex, "hex");
    assert.deepEqual(encodeFrame(expected), wire);
    const reader = new FrameReader({ hunt: [] });
    reader.push(wire);
    assert.deepEqual(drain(reader), [{ ...expected, payload: Uint8Array.from(expected.payload) }]);
    assert.deepEqual([reader.heldBytes, reader.skippedBytes], [0, 0]);
  });
}

const anyFrame = fc.record(
  {
    type: fc.integer({ min: 0, max: 255 }),
    epoch: fc.integer({ min: 0, max: 0xffffffff }),
    stream: fc.integer({ min: 0, max: 0xffffffff }),
    offset: fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }),
    payload: fc.uint8Array({ maxLength: 400 }),
  },
  { noNullPrototype: true },
);

test("any frames come out as they went in, whatever the slices, and strictly", () => {
  fc.assert(
    fc.property(fc.array(anyFrame, { maxLength: 10 }), fc.integer({ min: 1, max: 200 }), (frames, size) => {
      const wire = Buffer.concat(frames.map((f) => encodeFrame(f)));
      const reader = new FrameReader({ hunt: HUNT });
      reader.setStrict();
      const seen: Frame[] = [];
      for (let at = 0; at < wire.length; at += size) {
        reader.push(wire.subarray(at, at + size));
        seen.push(...drain(reader));
      }
      assert.deepEqual(seen, frames);
    }),
  );
});

test("after any garbage and half frame a whole answer is found", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), anyFrame, fc.nat(), fc.integer({ min: 1, max: 100 }), (junk, half, cut, size) => {
      const broken = encodeFrame(half);
      const answer = frame(FRAME_TYPE.welcome, Buffer.from("the answer"));
      const wire = Buffer.concat([junk, broken.subarray(0, cut % broken.length), encodeFrame(answer)]);
      const reader = new FrameReader({ hunt: HUNT });
      const seen: Frame[] = [];
      for (let at = 0; at < wire.length; at += size) {
        reader.push(wire.subarray(at, at + size));
        seen.push(...drain(reader));
      }
      assert.equal(Buffer.from(seen.at(-1)?.payload ?? []).toString(), "the answer");
    }),
  );
});

test("a frame's cut-off announcement does not swallow the answer", () => {
  const long = encodeFrame(frame(FRAME_TYPE.data, new Uint8Array(MAX_FRAME_PAYLOAD_BYTES)));
  for (const cut of [1, 4, 27, 28, 29, 20_000, long.length - 1]) {
    const reader = new FrameReader({ hunt: HUNT });
    reader.push(long.subarray(0, cut));
    assert.deepEqual(drain(reader), []);
    reader.push(encodeFrame(frame(FRAME_TYPE.welcome)));
    assert.deepEqual(
      drain(reader).map((f) => f.type),
      [FRAME_TYPE.welcome],
      `cut at ${cut}`,
    );
    assert.equal(reader.skippedBytes, cut);
  }
});

test("only the awaited type is looked for inside a frame", () => {
  const forged = encodeFrame(frame(FRAME_TYPE.data, Buffer.from("forged"), 66));
  const outer = encodeFrame(frame(FRAME_TYPE.data, forged));
  const reader = new FrameReader({ hunt: HUNT });
  reader.push(outer.subarray(0, outer.length - 1));
  assert.deepEqual(drain(reader), []);
  reader.push(outer.subarray(outer.length - 1));
  assert.deepEqual(
    drain(reader).map((f) => f.stream),
    [1],
  );
});

test("once strict, an awaited frame inside another is data", () => {
  const outer = encodeFrame(frame(FRAME_TYPE.data, encodeFrame(frame(FRAME_TYPE.welcome))));
  const reader = new FrameReader({ hunt: HUNT });
  reader.setStrict();
  reader.push(outer.subarray(0, outer.length - 1));
  assert.deepEqual(drain(reader), []);
});

test("once strict, one stray byte or wrong checksum ends it", () => {
  const wire = encodeFrame(frame(FRAME_TYPE.data, Buffer.from("payload")));
  for (const bad of [Buffer.concat([Buffer.from([0]), wire]), Buffer.from("F?"), flip(wire, 30), flip(wire, 9)]) {
    const reader = new FrameReader({ hunt: HUNT });
    reader.setStrict();
    reader.push(bad);
    assert.throws(() => drain(reader), { code: "AGENT_PROTOCOL" });
  }
});

test("a guest cannot make garbage dear", () => {
  // Each false header claims the largest payload, so each would cost a checksum over 32 KiB.
  const header = Buffer.from(encodeFrame(frame(FRAME_TYPE.data))).subarray(0, FRAME_HEADER_BYTES);
  header.writeUInt16LE(MAX_FRAME_PAYLOAD_BYTES, 6);
  const reader = new FrameReader({ hunt: HUNT });
  assert.throws(
    () => {
      for (let i = 0; i < 100_000; i += 1) {
        reader.push(header);
        drain(reader);
        assert.ok(reader.heldBytes <= FRAME_HEADER_BYTES + MAX_FRAME_PAYLOAD_BYTES);
      }
    },
    { code: "AGENT_PROTOCOL" },
  );
  const other = new FrameReader({ hunt: HUNT });
  assert.throws(
    () => {
      for (let i = 0; i < 100; i += 1) {
        other.push(Buffer.alloc(64 * 1024, 0x41));
        drain(other);
      }
    },
    { code: "AGENT_PROTOCOL" },
  );
});

test("random changes never make it throw anything else, hang or grow", () => {
  const wire = Buffer.concat(Array.from({ length: 5 }, (_, i) => encodeFrame(frame(FRAME_TYPE.data, new Uint8Array(i * 30).fill(i), i))));
  const change = fc.record({ at: fc.nat(wire.length - 1), byte: fc.nat(255) });
  fc.assert(
    fc.property(fc.array(change, { maxLength: 8 }), fc.boolean(), (changes, strict) => {
      const bytes = Buffer.from(wire);
      for (const { at, byte } of changes) bytes[at] = byte;
      const reader = new FrameReader({ hunt: HUNT });
      if (strict) reader.setStrict();
      reader.push(bytes);
      try {
        for (const found of drain(reader)) assert.ok(found.payload.length <= MAX_FRAME_PAYLOAD_BYTES);
      } catch (error) {
        assert.equal((error as { code?: string }).code, "AGENT_PROTOCOL"); // anything else fails the test
        assert.ok(strict);
      }
    }),
    { numRuns: 2000 },
  );
});

test("a payload that is too long is a fault of ours", () => {
  assert.throws(() => encodeFrame(frame(FRAME_TYPE.data, new Uint8Array(MAX_FRAME_PAYLOAD_BYTES + 1))), RangeError);
});

function flip(bytes: Buffer, at: number): Buffer {
  const copy = Buffer.from(bytes);
  copy[at] = (copy[at] ?? 0) ^ 1;
  return copy;
}

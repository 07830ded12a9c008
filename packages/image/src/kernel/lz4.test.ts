import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { decodeBlock, decodeLz4Legacy, LZ4_LEGACY_MAGIC } from "./lz4.ts";

interface Step {
  readonly literals: Uint8Array;
  readonly distance: number;
  readonly length: number;
}

function lengthBytes(length: number): number[] {
  if (length < 15) return [];
  const bytes: number[] = [];
  let rest = length - 15;
  for (; rest >= 255; rest -= 255) bytes.push(255);
  return [...bytes, rest];
}

/** Encodes steps and, beside it, applies them byte by byte: the model the decoder is compared with. */
function encode(steps: readonly Step[], last: Uint8Array): { readonly block: Buffer; readonly plain: Buffer } {
  const block: number[] = [];
  const plain: number[] = [];
  for (const { literals, distance, length } of steps) {
    plain.push(...literals);
    if (plain.length === 0) continue;
    const back = 1 + (distance % plain.length);
    block.push((Math.min(literals.length, 15) << 4) | Math.min(length - 4, 15), ...lengthBytes(literals.length), ...literals);
    block.push(back & 255, back >> 8, ...lengthBytes(length - 4));
    for (let index = 0; index < length; index += 1) plain.push(plain[plain.length - back] ?? 0);
  }
  block.push(Math.min(last.length, 15) << 4, ...lengthBytes(last.length), ...last);
  plain.push(...last);
  return { block: Buffer.from(block), plain: Buffer.from(plain) };
}

const steps = fc.array(
  fc.record({
    literals: fc.uint8Array({ minLength: 1, maxLength: 600 }),
    distance: fc.nat(60_000),
    length: fc.integer({ min: 4, max: 700 }),
  }),
  { maxLength: 12 },
);

test("blocks decode to what they were made from", () => {
  fc.assert(
    fc.property(steps, fc.uint8Array({ maxLength: 400 }), (list, last) => {
      const { block, plain } = encode(list, last);
      assert.ok(decodeBlock(block)?.equals(plain));
    }),
  );
});

test("damaged blocks never throw", () => {
  fc.assert(fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => void decodeBlock(Buffer.from(bytes))));
});

test("a frame is its blocks in order, up to the bound", () => {
  const { block, plain } = encode([{ literals: Buffer.from("abcd"), distance: 3, length: 100 }], Buffer.from("end"));
  const head = Buffer.alloc(4);
  head.writeUInt32LE(LZ4_LEGACY_MAGIC);
  const size = Buffer.alloc(4);
  size.writeUInt32LE(block.length);
  const frame = Buffer.concat([head, size, block, size, block]);
  assert.ok(decodeLz4Legacy(frame, 1000)?.equals(Buffer.concat([plain, plain])));
  assert.equal(decodeLz4Legacy(frame, plain.length), undefined);
  assert.equal(decodeLz4Legacy(Buffer.from("no frame"), 1000), undefined);
  assert.equal(decodeLz4Legacy(head, 1000), undefined);
});

import assert from "node:assert/strict";
import test from "node:test";
import { isPlatformError } from "@fluxvm/core";
import fc from "fast-check";
import { encodeOverlay, furthestByteOfEntry, parseQcow2Header, type Qcow2Header } from "./qcow2.ts";

const GIB = 2 ** 30;

/** A header of version 3 without anything odd about it. */
function plainHeader(): Buffer {
  const head = Buffer.alloc(65_536);
  head.write("QFI\xfb", 0, "latin1");
  head.writeUInt32BE(3, 4);
  head.writeUInt32BE(16, 20);
  head.writeBigUInt64BE(BigInt(GIB), 24);
  head.writeUInt32BE(2, 36);
  head.writeBigUInt64BE(0x3_0000n, 40);
  head.writeUInt32BE(4, 96);
  head.writeUInt32BE(104, 100);
  return head;
}

test("an overlay's header says what it is over and how large it is", () => {
  const { head, fileBytes } = encodeOverlay({ backingPath: "/images/é/disk.raw", backingFormat: "raw", virtualBytes: 10 * GIB });
  const bytes = Buffer.from(head);
  assert.equal(bytes.toString("latin1", 0, 4), "QFI\xfb");
  const [offset, length] = [Number(bytes.readBigUInt64BE(8)), bytes.readUInt32BE(16)];
  assert.equal(bytes.toString("utf8", offset, offset + length), "/images/é/disk.raw");
  assert.equal(bytes.readBigUInt64BE(24), BigInt(10 * GIB));
  assert.equal(bytes.readUInt32BE(36), 20);
  assert.equal(fileBytes, 4 * 65_536);
});

test("an L1 table grows with the disk, and each of its clusters is counted", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 2 ** 36 }), (sectors) => {
      const { head, fileBytes } = encodeOverlay({ backingPath: "/b", backingFormat: "qcow2", virtualBytes: sectors * 512 });
      const bytes = Buffer.from(head);
      assert.ok(bytes.readUInt32BE(36) * 2 ** 29 >= sectors * 512);
      const clusters = fileBytes / 65_536;
      for (let index = 0; index < clusters + 2; index += 1)
        assert.equal(bytes.readUInt16BE(2 * 65_536 + 2 * index), index < clusters ? 1 : 0);
    }),
  );
});

test("mistakes of the caller are assertions", () => {
  for (const virtualBytes of [0, 100, -512, 2 ** 47]) {
    assert.throws(() => encodeOverlay({ backingPath: "/b", backingFormat: "raw", virtualBytes }), /overlay size/);
  }
  assert.throws(() => encodeOverlay({ backingPath: "x".repeat(1024), backingFormat: "raw", virtualBytes: 512 }), /backing file name/);
});

test("an honest header is read", () => {
  const header = parseQcow2Header(plainHeader(), "d");
  assert.deepEqual(header, { version: 3, virtualBytes: GIB, clusterBits: 16, l1Entries: 2, l1Offset: 0x3_0000, extendedL2: false });
});

test("a header that leads elsewhere or that nobody can vouch for is refused", () => {
  const cases: readonly (readonly [string, (head: Buffer) => unknown])[] = [
    ["backing file", (h) => h.writeBigUInt64BE(200n, 8)],
    ["backing file", (h) => h.writeUInt32BE(5, 16)],
    ["encrypted", (h) => h.writeUInt32BE(1, 32)],
    ["encrypted", (h) => h.writeUInt32BE(2, 32)],
    ["external data file", (h) => h.writeBigUInt64BE(4n, 72)],
    ["not closed cleanly", (h) => h.writeBigUInt64BE(1n, 72)],
    ["corrupt", (h) => h.writeBigUInt64BE(2n, 72)],
    ["unknown features", (h) => h.writeBigUInt64BE(1n << 40n, 72)],
    ["external data file", (h) => h.writeUInt32BE(0x4441_5441, 104)],
    ["encrypted", (h) => h.writeUInt32BE(0x0537_be77, 104)],
    ["backing file", (h) => h.writeUInt32BE(0xe279_2aca, 104)],
    ["version 1", (h) => h.writeUInt32BE(1, 4)],
    ["cluster size", (h) => h.writeUInt32BE(40, 20)],
    ["virtual size", (h) => h.writeBigUInt64BE(0n, 24)],
    ["virtual size", (h) => h.writeBigUInt64BE(2n ** 60n, 24)],
    ["L1 table", (h) => h.writeUInt32BE(1, 36)],
    ["L1 table", (h) => h.writeUInt32BE(0xffff_ffff, 36)],
    ["L1 table", (h) => h.writeBigUInt64BE(0x3_0001n, 40)],
    ["header length", (h) => h.writeUInt32BE(0xffff_fff0, 100)],
  ];
  for (const [expected, change] of cases) {
    const head = plainHeader();
    change(head);
    assert.throws(
      () => parseQcow2Header(head, "d"),
      (error) => isPlatformError(error, "IMAGE_MALFORMED") && error.message.includes(expected),
      expected,
    );
  }
  assert.throws(() => parseQcow2Header(plainHeader().subarray(0, 50), "d"), { code: "IMAGE_TRUNCATED" });
  assert.throws(() => parseQcow2Header(plainHeader().subarray(0, 90), "d"), { code: "IMAGE_TRUNCATED" });
});

test("no header makes the reader throw anything else", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(200), fc.nat(255)), { minLength: 1, maxLength: 10 }), (changes) => {
      const head = plainHeader();
      for (const [at, value] of changes) head[at] = value;
      try {
        parseQcow2Header(head, "d");
      } catch (error) {
        assert.ok(isPlatformError(error, "IMAGE_MALFORMED"), String(error));
      }
    }),
    { numRuns: 2000 },
  );
});

test("entries tell the last byte they need", () => {
  const header: Qcow2Header = { version: 3, virtualBytes: GIB, clusterBits: 16, l1Entries: 2, l1Offset: 0, extendedL2: false };
  assert.equal(furthestByteOfEntry(0n, header, "l1"), 0);
  assert.equal(furthestByteOfEntry((1n << 63n) | 0x5_0000n, header, "l1"), 0x6_0000);
  assert.equal(furthestByteOfEntry((1n << 63n) | 0x5_0000n, header, "l2"), 0x5_0001);
  // Compressed: 54 bits of offset, then sectors after the first.
  assert.equal(furthestByteOfEntry((1n << 62n) | (2n << 54n) | 0x1234n, header, "l2"), 0x1200 + 1024 + 1);
});

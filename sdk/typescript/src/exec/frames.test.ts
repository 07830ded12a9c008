import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/contracts";
import fc from "fast-check";
import { decodeOutputFrame, encodeStdinFrame, parseServerMessage } from "./frames.ts";

const isProtocolError = (error: unknown): boolean => isPlatformError(error, "DAEMON_PROTOCOL");

function toArrayBuffer(bytes: Uint8Array): ArrayBuffer {
  return new Uint8Array(bytes).buffer;
}

test("a stdin frame is channel 0, the offset big-endian, and the bytes", () => {
  assert.equal(encodeStdinFrame(0x0102030405, Buffer.from("hi")).toString("hex"), "0000000001020304056869");
});

test("output frames of any stream, offset and size are read as they were written", () => {
  fc.assert(
    fc.property(fc.constantFrom(1, 2), fc.maxSafeNat(), fc.uint8Array({ maxLength: 100 }), (channel, offset, bytes) => {
      const frame = encodeStdinFrame(offset, bytes);
      frame.writeUInt8(channel, 0);
      const got = decodeOutputFrame(toArrayBuffer(frame));
      assert.deepEqual([got.stream, got.offset, [...got.data]], [channel === 1 ? "stdout" : "stderr", offset, [...bytes]]);
    }),
  );
});

test("malformed binary frames are refused", () => {
  for (const hex of ["", "01", "0100000000000000", "000000000000000000", "03000000000000000041", "01ffffffffffffffff41"]) {
    assert.throws(() => decodeOutputFrame(toArrayBuffer(Buffer.from(hex, "hex"))), isProtocolError, hex);
  }
});

test("text frames are examined; unknown types are left to newer versions", () => {
  assert.deepEqual(parseServerMessage('{"type":"attached","stdin_offset":3,"more":1}'), { type: "attached", stdin_offset: 3 });
  assert.deepEqual(parseServerMessage('{"type":"exit","exit":{"code":2,"timed_out":false},"stdout_bytes":1,"stderr_bytes":0}'), {
    type: "exit",
    exit: { code: 2, timed_out: false },
    stdout_bytes: 1,
    stderr_bytes: 0,
  });
  assert.equal(parseServerMessage('{"type":"heartbeat"}'), undefined);
  assert.equal(parseServerMessage("null"), undefined);
  const bad = [
    "{",
    '{"type":"attached"}',
    '{"type":"attached","stdin_offset":-1}',
    '{"type":"stdin_ack","offset":1.5}',
    '{"type":"exit","exit":{},"stdout_bytes":0,"stderr_bytes":0}',
    '{"type":"exit","exit":{"timed_out":false},"stdout_bytes":"1","stderr_bytes":0}',
    '{"type":"error"}',
  ];
  for (const text of bad) assert.throws(() => parseServerMessage(text), isProtocolError, text);
});

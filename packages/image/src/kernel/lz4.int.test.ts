import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, openSync, readSync } from "node:fs";
import { test } from "node:test";
import { decodeLz4Legacy } from "./lz4.ts";

const PLAIN_BYTES = 48 << 20;

/** The beginning of this very program: real code, as a kernel is. */
function readPlain(): Buffer {
  const plain = Buffer.alloc(PLAIN_BYTES);
  const file = openSync(process.execPath, "r");
  const count = readSync(file, plain, 0, PLAIN_BYTES, 0);
  closeSync(file);
  return plain.subarray(0, count);
}

// The only test of its file: the optimiser's fault that it guards against shows in the first decoding of a process.
test("the first large frame of a process comes out as lz4 itself packed it", () => {
  const plain = readPlain();
  const frame = execFileSync("lz4", ["-l", "-9", "-c"], { input: plain, maxBuffer: 2 * PLAIN_BYTES });
  assert.ok(decodeLz4Legacy(frame, 2 * PLAIN_BYTES)?.equals(plain));
});

/** The agent's binary as a file: it travels in every initrd. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { test } from "node:test";
import { testAgentBinaryPath } from "./testing/index.ts";

const PT_DYNAMIC = 2;
const PT_INTERP = 3;

test("it is under 1 MiB", () => {
  const { size } = statSync(testAgentBinaryPath());
  assert.ok(size < 1_048_576, `${size} bytes`);
});

test("it needs nothing of the guest: no interpreter, no libraries", () => {
  const elf = readFileSync(testAgentBinaryPath());
  const start = Number(elf.readBigUInt64LE(32));
  const types = Array.from({ length: elf.readUInt16LE(56) }, (_, i) => elf.readUInt32LE(start + i * elf.readUInt16LE(54)));
  assert.ok(types.length > 0);
  assert.ok(!types.includes(PT_INTERP) && !types.includes(PT_DYNAMIC), types.join(","));
});

test("it says its version, and how it is called when called wrongly", () => {
  assert.match(execFileSync(testAgentBinaryPath(), ["version"], { encoding: "utf8" }), /^fluxvm-guest-agent \d+\.\d+\.\d+\n$/);
  assert.throws(() => execFileSync(testAgentBinaryPath(), [], { stdio: "pipe" }), { status: 2 });
  assert.throws(() => execFileSync(testAgentBinaryPath(), ["serve", "--config", "/no/such/file"], { stdio: "pipe" }), { status: 1 });
});

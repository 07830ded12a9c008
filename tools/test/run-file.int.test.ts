import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { runTestFile } from "./run-file.ts";
import { countTotals, formatFailures, type UnitResult } from "./tally.ts";

const HEAD = 'import { describe, test } from "node:test";\nimport assert from "node:assert/strict";\n';

async function runText(text: string, more: { timeoutMs?: number; grep?: string } = {}): Promise<UnitResult> {
  const root = mkdtempSync(join(tmpdir(), "run-file-"));
  try {
    writeFileSync(join(root, "x.test.mjs"), HEAD + text);
    return await runTestFile({ root, path: "x.test.mjs", timeoutMs: more.timeoutMs ?? 30_000, env: process.env, grep: more.grep });
  } finally {
    rmSync(root, { recursive: true });
  }
}

test("passed, failed and skipped tests are counted by name, suites are not", async () => {
  const result = await runText(`
    test("a", () => {});
    test("b", () => assert.equal(1, 2));
    test("c", (t) => t.skip("no such device"));
    describe("group", () => { test("d", () => {}); test("e", async () => { throw new Error("inner cause"); }); });
    test("parent", async (t) => { await t.test("child", () => {}); });
  `);
  assert.deepEqual(countTotals([result]), { passed: 4, failed: 2, skipped: 1 });
  const names = result.records.map((r) => `${r.outcome} ${r.name}`);
  assert.deepEqual(names, [
    "passed a",
    "failed b",
    "skipped c",
    "passed group > d",
    "failed group > e",
    "passed parent > child",
    "passed parent",
  ]);
  assert.equal(result.records[2]?.detail, "no such device");
  assert.match(formatFailures(result), /inner cause/);
});

test("a file that crashes after a passed test has failed", async () => {
  const result = await runText('test("a", () => {});\ntest("b", () => { process.kill(process.pid, "SIGKILL"); });\n');
  assert.equal(countTotals([result]).failed, 1);
  assert.match(formatFailures(result), /ended by SIGKILL/);
});

test("a file that ends the process early has failed", async () => {
  const result = await runText('test("a", () => { process.exit(3); });\n');
  assert.equal(countTotals([result]).failed, 1);
});

test("a file that ends the process early with success, tests unfinished, has failed", async () => {
  const result = await runText('test("a", async () => { await new Promise(() => setTimeout(() => process.exit(0), 50)); });\n');
  assert.ok(countTotals([result]).failed >= 1, JSON.stringify(result));
});

test("a file that throws before any test has failed, with its message", async () => {
  const result = await runText('throw new Error("cannot start");\n');
  assert.equal(countTotals([result]).failed, 1);
  assert.match(formatFailures(result), /cannot start/);
});

test("a file that never ends is killed and has failed, the tests before it count", async () => {
  const result = await runText('test("a", () => {});\ntest("b", async () => { await new Promise((r) => setTimeout(r, 600_000)); });\n', {
    timeoutMs: 1500,
  });
  assert.equal(countTotals([result]).failed >= 1, true);
  assert.match(formatFailures(result), /did not end in 1.5 s/);
  assert.ok(result.durationMs < 20_000);
});

test("a file that ignores the polite signal is killed all the same", async () => {
  const text = 'process.on("SIGTERM", () => {});\nfor (;;) {}\n';
  const result = await runText(text, { timeoutMs: 1000 });
  assert.equal(countTotals([result]).failed, 1);
});

test("a file without tests has failed, unless a pattern left none", async () => {
  assert.equal(countTotals([await runText("")]).failed, 1);
  const result = await runText('test("abc", () => {});\ntest("xyz", () => {});\n', { grep: "abc" });
  assert.deepEqual(countTotals([result]), { passed: 1, failed: 0, skipped: 0 });
  assert.equal(countTotals([await runText('test("abc", () => {});\n', { grep: "other" })]).failed, 0);
});

test("a test left for later has failed", async () => {
  const result = await runText('test("a", { ["to" + "do"]: "some day" }, () => {});\n');
  assert.deepEqual(countTotals([result]), { passed: 0, failed: 1, skipped: 0 });
});

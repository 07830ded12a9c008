import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { parseCargoOutput } from "./cargo.ts";
import { findTestFiles } from "./discover.ts";
import { parseOptions, PARTS } from "./options.ts";
import { mapBounded } from "./pool.ts";
import { findUnexpectedSkips, readExpectedSkips } from "./skips.ts";
import { countTotals, formatTotals, type UnitResult } from "./tally.ts";

function inFolder<T>(files: Readonly<Record<string, string>>, work: (root: string) => T): T {
  const root = mkdtempSync(join(tmpdir(), "runner-"));
  try {
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text);
    }
    return work(root);
  } finally {
    rmSync(root, { recursive: true });
  }
}

const CARGO = `
running 3 tests
test parse::one ... ok
test parse::two - should panic ... ok
test slow ... ignored, needs root
test bad ... FAILED

failures:
---- bad stdout ----
test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
`;

test("cargo's verdicts are read line by line, with the reason of an ignored one", () => {
  const records = parseCargoOutput(CARGO);
  assert.deepEqual(
    records.map((r) => [r.name, r.outcome, r.outcome === "skipped" ? r.detail : ""]),
    [
      ["parse::one", "passed", ""],
      ["parse::two - should panic", "passed", ""],
      ["slow", "skipped", "needs root"],
      ["bad", "failed", ""],
    ],
  );
  assert.deepEqual(parseCargoOutput("error: could not compile\n"), []);
});

test("files go to their tier, and words narrow them", () => {
  const files = [
    "packages/a/src/x.test.ts",
    "packages/a/src/deep/y.int.test.ts",
    "tools/t/z.test.ts",
    "test/e2e/boot.test.ts",
    "test/integration/i.test.ts",
  ];
  inFolder(Object.fromEntries([...files, "packages/a/node_modules/m/src/n.test.ts", "packages/a/src/x.ts"].map((f) => [f, ""])), (root) => {
    assert.deepEqual(findTestFiles(root, "unit"), ["packages/a/src/x.test.ts", "tools/t/z.test.ts"]);
    assert.deepEqual(findTestFiles(root, "int"), ["packages/a/src/deep/y.int.test.ts", "test/integration/i.test.ts"]);
    assert.deepEqual(findTestFiles(root, "e2e"), ["test/e2e/boot.test.ts"]);
    assert.deepEqual(findTestFiles(root, "unit", ["tools/"]), ["tools/t/z.test.ts"]);
  });
});

const SKIPPED: UnitResult = {
  name: "packages/host/src/kvm.int.test.ts",
  durationMs: 1,
  output: "",
  records: [{ name: "boots on KVM", outcome: "skipped", detail: "no KVM", durationMs: 0 }],
};

test("a skip that the list expects is fine, any other is named with its reason", () => {
  assert.deepEqual(findUnexpectedSkips([SKIPPED], [{ test: "kvm.*: boots on KVM", reason: "needs a host with KVM" }]), []);
  assert.deepEqual(findUnexpectedSkips([SKIPPED], [{ test: "kvm", because: "^no KVM$", reason: "needs a host with KVM" }]), []);
  assert.equal(findUnexpectedSkips([SKIPPED], [{ test: "kvm", because: "^needs root$", reason: "needs to be root" }]).length, 1);
  assert.deepEqual(findUnexpectedSkips([SKIPPED], []), ["packages/host/src/kvm.int.test.ts: boots on KVM (no KVM)"]);
});

test("the list of skips must give reasons", () => {
  const good = JSON.stringify([{ test: "x", reason: "needs a host with KVM" }]);
  inFolder({ "good.json": good, "bare.json": '[{"test":"x","reason":""}]', "odd.json": "{}" }, (root) => {
    assert.equal(readExpectedSkips(join(root, "good.json")).length, 1);
    assert.throws(() => readExpectedSkips(join(root, "bare.json")), /reason/);
    assert.throws(() => readExpectedSkips(join(root, "odd.json")), /list/);
  });
});

test("options choose parts; a pattern or a path leaves out what has neither", () => {
  assert.deepEqual(parseOptions([]).parts, PARTS);
  assert.deepEqual(parseOptions(["--only", "e2e", "--only", "unit"]).parts, ["unit", "e2e"]);
  assert.deepEqual(parseOptions(["--grep", "boot"]).parts, ["unit", "int", "e2e"]);
  assert.deepEqual(parseOptions(["packages/core"]).files, ["packages/core"]);
  assert.throws(() => parseOptions(["--only", "everything"]), /must be one of/);
  assert.throws(() => parseOptions(["--nope"]), /nope/);
});

test("totals are one line that adds all up", () => {
  const records = (["passed", "passed", "failed", "skipped", "todo"] as const).map((outcome) => ({
    name: "x",
    outcome,
    detail: "",
    durationMs: 0,
  }));
  assert.equal(formatTotals(countTotals([{ name: "a", durationMs: 0, output: "", records }, SKIPPED])), "2 passed, 2 failed, 2 skipped");
});

test("the pool keeps its width and the order", async () => {
  let active = 0;
  let most = 0;
  const results = await mapBounded([5, 1, 3, 2], 2, async (n) => {
    active += 1;
    most = Math.max(most, active);
    for (let i = 0; i < n; i += 1) await Promise.resolve();
    active -= 1;
    return n * 10;
  });
  assert.deepEqual(results, [50, 10, 30, 20]);
  assert.equal(most, 2);
  assert.deepEqual(await mapBounded([], 2, async () => 1), []);
});

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { runStep, STEPS } from "./steps.ts";

async function runInFolder(step: Parameters<typeof runStep>[1]): Promise<string> {
  const root = mkdtempSync(join(tmpdir(), "steps-"));
  try {
    const { records } = await runStep(root, step);
    return records.map((r) => `${r.name} ${r.outcome} ${r.detail}`).join("\n");
  } finally {
    rmSync(root, { recursive: true });
  }
}

test("a step passes, fails with what puts it right, or is skipped where its program is not installed", async () => {
  const step = { name: "one", command: "sh", args: ["-c", "exit 0"] };
  assert.equal(await runInFolder(step), "one passed ");
  assert.equal(await runInFolder({ ...step, args: ["-c", "exit 3"], fix: "do it" }), "one failed ended with code 3; `do it` puts it right");
  assert.equal(await runInFolder({ ...step, args: ["-c", "exit 3"], probe: ["-c", "exit 1"] }), "one skipped one: not installed");
  assert.equal(await runInFolder({ ...step, probe: ["-c", "exit 0"] }), "one passed ");
});

test("badly formatted Rust is found", async (t) => {
  const step = STEPS.find((s) => s.name === "rust format");
  assert.ok(step?.probe !== undefined);
  const root = mkdtempSync(join(tmpdir(), "steps-"));
  try {
    mkdirSync(join(root, "native/x/src"), { recursive: true });
    symlinkSync(join(import.meta.dirname, "../../tools"), join(root, "tools"));
    writeFileSync(join(root, "native/Cargo.toml"), '[workspace]\nmembers = ["x"]\nresolver = "2"\n');
    writeFileSync(join(root, "native/x/Cargo.toml"), '[package]\nname = "x"\nversion = "0.1.0"\nedition = "2024"\n');
    writeFileSync(join(root, "native/x/src/main.rs"), "fn main() {}\n");
    const good = await runStep(root, step);
    if (good.records[0]?.outcome === "skipped") return t.skip("needs rustfmt");
    assert.deepEqual(
      good.records.map((r) => r.outcome),
      ["passed"],
      good.output,
    );
    writeFileSync(join(root, "native/x/src/main.rs"), "fn main( ) { }\n");
    assert.deepEqual(
      (await runStep(root, step)).records.map((r) => r.outcome),
      ["failed"],
    );
  } finally {
    rmSync(root, { recursive: true });
  }
});

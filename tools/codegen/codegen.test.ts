import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ERROR_CATALOGUE } from "@fluxvm/core";
import { formatTable, type Generator } from "./generator.ts";
import { configPages, describeType, formatToml, listConfigKeys } from "./generators/config.ts";
import { errorsPage } from "./generators/errors.ts";
import { createMetricsPage } from "./generators/metrics.ts";
import { runGenerators } from "./run.ts";

const one: Generator = { name: "one", generate: async () => await Promise.resolve({ "docs/deep/one.md": "1\n" }) };

test("a missing and a changed file are drift; checking writes nothing, writing settles it", async () => {
  const root = mkdtempSync(join(tmpdir(), "gen-"));
  try {
    const drift = [{ generator: "one", path: "docs/deep/one.md" }];
    assert.deepEqual(await runGenerators(root, [one], { write: false }), drift);
    assert.deepEqual(await runGenerators(root, [one], { write: true }), drift);
    assert.deepEqual(await runGenerators(root, [one], { write: false }), []);
    writeFileSync(join(root, "docs/deep/one.md"), "edited\n");
    assert.deepEqual(await runGenerators(root, [one], { write: false }), drift);
    assert.equal(readFileSync(join(root, "docs/deep/one.md"), "utf8"), "edited\n");
  } finally {
    rmSync(root, { recursive: true });
  }
});

test("the errors page has a row for each code", async () => {
  const page = (await errorsPage.generate())["docs/manual/errors.md"] ?? "";
  for (const [code, row] of Object.entries(ERROR_CATALOGUE)) assert.ok(page.includes(`| \`${code}\` | \`${row.class}\` |`), code);
});

test("the sample names every key of the page, commented out", async () => {
  const files = await configPages.generate();
  const sample = files["deploy/fluxvm.sample.toml"] ?? "";
  for (const line of sample.split("\n")) assert.ok(line === "" || /^(#|\[)/.test(line), line);
  assert.match(sample, /^# listen = "127.0.0.1:7788"$/m);
  assert.match(files["docs/manual/config.md"] ?? "", /\| `listen` \| string \| `"127.0.0.1:7788"` \|/);
});

test("keys keep their section, types are in words, values are TOML", () => {
  const keys = listConfigKeys({ properties: { a: { type: "string" }, b: { properties: { c: { type: "integer", minimum: 1 } } } } });
  assert.deepEqual(
    keys.map((k) => [k.section, k.key]),
    [
      ["", "a"],
      ["b", "c"],
    ],
  );
  assert.equal(describeType({ type: "integer", minimum: 1, maximum: 9 }), "integer, at least 1, at most 9");
  assert.equal(describeType({ anyOf: [{ const: "x" }, { const: "y" }] }), "`x`, `y`");
  assert.equal(describeType({ type: "array", items: { type: "string" } }), "list of string");
  assert.equal(formatToml(["a", 1, true]), '["a", 1, true]');
});

test("a bar in a cell does not end it", () => {
  assert.equal(formatTable(["a"], [["x|y\nz"]]), "| a |\n| --- |\n| x\\|y z |");
});

test("the metrics page has a section for each owner, and an owner that declares none is an error", async () => {
  const page = (await createMetricsPage(join(import.meta.dirname, "../..")).generate())["docs/manual/metrics.md"] ?? "";
  for (const text of ["## packages/api", "## packages/manager", "`fluxvm_vms`", "`fluxvm_vm_transitions_total`"])
    assert.ok(page.includes(text), text);
  const root = mkdtempSync(join(tmpdir(), "gen-"));
  try {
    mkdirSync(join(root, "packages/mute/src"), { recursive: true });
    writeFileSync(join(root, "packages/mute/src/metrics.ts"), "export const MUTE_METRICS = {};\n");
    await assert.rejects(createMetricsPage(root).generate(), /mute.*exports no METRICS/);
  } finally {
    rmSync(root, { recursive: true });
  }
});

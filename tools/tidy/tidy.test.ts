import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { BACKEND_NAMES, decideImport, LAYERS } from "./layers.ts";
import { findCycles } from "./rules/imports.ts";
import { formatProblem, runTidy } from "./run.ts";

type Files = Readonly<Record<string, string>>;

function manifest(name: string, more: object = {}): string {
  return JSON.stringify({ name: `@fluxvm/${name}`, exports: { ".": "./src/index.ts", "./testing": "./src/testing/index.ts" }, ...more });
}

/** A small tree that breaks no rule. */
const CLEAN: Files = {
  "package.json": JSON.stringify({ devDependencies: { "fast-check": "1" } }),
  "README.md": "# x\n\nSee `packages/core/src/index.ts` and [core](packages/core/README.md). Later: `packages/fleet/` (Planned).\n",
  "packages/core/package.json": manifest("core"),
  "packages/core/README.md": "# core\n",
  "packages/core/src/index.ts": 'export { one } from "./one.ts";\n',
  "packages/core/src/one.ts": "export const one = (): number => 1;\n",
  "packages/core/src/one.test.ts":
    'import fc from "fast-check";\nimport { test } from "node:test";\ntest("x", () => void setTimeout(() => fc, Date.now()));\n',
  "packages/core/src/testing/index.ts": 'export { one } from "../one.ts";\n',
  "packages/store/package.json": manifest("store", { dependencies: { "@fluxvm/core": "*" } }),
  "packages/store/README.md": "# store\n",
  "packages/store/src/index.ts": 'export type { Store } from "./store.ts";\n',
  "packages/store/src/store.ts": 'import { one } from "@fluxvm/core";\nexport interface Store {\n  readonly one: typeof one;\n}\n',
  "packages/engine/package.json": manifest("engine", { dependencies: { "@fluxvm/core": "*", "@fluxvm/store": "*" } }),
  "packages/engine/README.md": "# engine\n",
  "packages/engine/src/index.ts": 'export { keep } from "./keep.ts";\n',
  "packages/engine/src/keep.ts":
    'import type { Store } from "@fluxvm/store";\nexport const keep = (s: Store): unknown => s as unknown; // as unknown is safe\n',
  "packages/engine/src/keep.test.ts": 'import { one } from "@fluxvm/core/testing";\nexport const two = one() as 1;\n',
  "apps/fluxvmd/package.json": JSON.stringify({ name: "@fluxvm/fluxvmd", dependencies: { "@fluxvm/engine": "*" } }),
  "apps/fluxvmd/README.md": "# fluxvmd\n",
  "apps/fluxvmd/src/main.ts": 'import { keep } from "@fluxvm/engine";\nprocess.on("SIGTERM", () => process.exit(0));\nexport { keep };\n',
};

function check(extra: Files): string[] {
  const root = mkdtempSync(join(tmpdir(), "tidy-"));
  try {
    for (const [path, text] of Object.entries({ ...CLEAN, ...extra })) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text);
    }
    return runTidy(root).map(formatProblem);
  } finally {
    rmSync(root, { recursive: true });
  }
}

test("a clean tree has no problems", () => {
  assert.deepEqual(check({}), []);
});

interface Plant {
  readonly rule: string;
  readonly what: string;
  readonly files: Files;
}

const core = (text: string): Files => ({ "packages/core/src/bad.ts": text });
const store = (text: string): Files => ({ "packages/store/src/bad.ts": text });
const lines = (count: number, line = "export {};"): string => `${line}\n`.repeat(count);
const withDependency = (name: string, dependency: string): Files => ({
  [`packages/${name}/package.json`]: manifest(name, { dependencies: { "@fluxvm/core": "*", "@fluxvm/store": "*", [dependency]: "*" } }),
});
const TICK = "`";
/** A word written in two parts, so that this file does not break the rule itself. */
const split = (text: string): string => text.split(".").join("");

const PLANTS: readonly Plant[] = [
  { rule: "syntax", what: "a file that does not parse", files: core("export const = 1;\n") },
  {
    rule: "layers",
    what: "a lower layer importing a higher one",
    files: { ...withDependency("core", "@fluxvm/engine"), ...core('import "@fluxvm/engine";\n') },
  },
  {
    rule: "layers",
    what: "a value of a package allowed as types only",
    files: { "packages/engine/src/bad.ts": 'import { Store } from "@fluxvm/store";\nexport { Store };\n' },
  },
  {
    rule: "layers",
    what: "an app being imported",
    files: { ...withDependency("store", "@fluxvm/fluxvmd"), ...store('export type { X } from "@fluxvm/fluxvmd";\n') },
  },
  {
    rule: "layers",
    what: "a package that is not in the table",
    files: { "packages/extra/package.json": manifest("extra"), "packages/extra/README.md": "" },
  },
  { rule: "deep-import", what: "a path into another package by name", files: store('import "@fluxvm/core/src/one.ts";\n') },
  { rule: "deep-import", what: "a relative path out of the package", files: store('import "../../core/src/one.ts";\n') },
  { rule: "deep-import", what: "testing code in product code", files: store('import "@fluxvm/core/testing";\n') },
  {
    rule: "undeclared-import",
    what: "a workspace package not in package.json",
    files: { "apps/fluxvmd/src/bad.ts": 'import "@fluxvm/store";\n' },
  },
  { rule: "undeclared-import", what: "an npm package not in package.json", files: store('import pino from "pino";\nexport { pino };\n') },
  {
    rule: "undeclared-import",
    what: "a dynamic import not in package.json",
    files: store('export const p = async () => await import("undici");\n'),
  },
  {
    rule: "cycle",
    what: "two packages importing each other",
    files: { ...withDependency("core", "@fluxvm/store"), ...core('export type { Store } from "@fluxvm/store";\n') },
  },
  {
    rule: "cycle",
    what: "two files importing each other",
    files: { ...core('import "./worse.ts";\n'), "packages/core/src/worse.ts": 'import "./bad.ts";\n' },
  },
  {
    rule: "child-process",
    what: "a process started outside host",
    files: store('import { spawn } from "node:child_process";\nexport { spawn };\n'),
  },
  { rule: "child-process", what: "the same in an app", files: { "apps/fluxvmd/src/bad.ts": 'import "node:child_process";\n' } },
  { rule: "purity", what: "the file system in core", files: core('import { readFile } from "node:fs/promises";\nexport { readFile };\n') },
  { rule: "purity", what: "the wall clock in core", files: core("export const now = Date.now();\n") },
  { rule: "purity", what: "the wall clock passed on", files: core("export const now = Date.now;\n") },
  { rule: "purity", what: "a date of now", files: core("export const now = new Date();\n") },
  { rule: "purity", what: "chance", files: core("export const r = Math.random();\n") },
  { rule: "purity", what: "chance from crypto", files: core("export const r = globalThis.crypto.randomUUID();\n") },
  { rule: "purity", what: "a bare timer", files: core("setTimeout(() => undefined, 1);\n") },
  { rule: "purity", what: "a timer of globalThis", files: core("globalThis.setImmediate(() => undefined);\n") },
  {
    rule: "purity",
    what: "timers of node",
    files: core('import { setTimeout as sleep } from "node:timers/promises";\nexport { sleep };\n'),
  },
  { rule: "interval", what: "setInterval anywhere", files: { "tools/bad.ts": "setInterval(() => undefined, 1);\n" } },
  { rule: "process", what: "the environment", files: store("export const home = process.env.HOME;\n") },
  { rule: "process", what: "the arguments, by name", files: store('import { argv } from "node:process";\nexport { argv };\n') },
  { rule: "process", what: "ending the process in an app's inner file", files: { "apps/fluxvmd/src/bad.ts": "process.exit(1);\n" } },
  { rule: "process", what: "a signal handler", files: store('process.once("SIGINT", () => undefined);\n') },
  { rule: "backend-name", what: "a comparison", files: store('export const f = (b: string): boolean => b === "qemu";\n') },
  {
    rule: "backend-name",
    what: "a switch over a backend",
    files: store('export function f(backend: string): void {\n  switch (backend) {\n    case "fluxvm":\n  }\n}\n'),
  },
  { rule: "folder-name", what: "a folder called utils", files: { "packages/core/src/utils/one.ts": "export {};\n" } },
  { rule: "file-name", what: "a name in camel case", files: { "packages/core/src/badName.ts": "export {};\n" } },
  { rule: "file-name", what: "a file called types", files: { "packages/core/src/types.ts": "export {};\n" } },
  { rule: "type-name", what: "an I prefix", files: core("export interface IStore {}\n") },
  { rule: "type-name", what: "an Impl", files: core("export type StoreImpl = 1;\n") },
  { rule: "unit", what: "a parameter without a unit", files: core("export const f = (timeout: number): number => timeout;\n") },
  { rule: "unit", what: "a property without a unit", files: core("export interface Limits {\n  readonly maxAge: number;\n}\n") },
  { rule: "acronym", what: "a type in capitals", files: core("export type VMId = string;\n") },
  { rule: "acronym", what: "a function with capitals in it", files: core("export function parseCIDR(): void {}\n") },
  { rule: "side-effect", what: "an import without names", files: core('import "./one.ts";\nexport {};\n') },
  { rule: "inheritance", what: "a class that inherits", files: core("/** x */\nclass A {}\nexport class B extends A {}\n") },
  { rule: "file-length", what: "501 lines of TypeScript", files: core(lines(501)) },
  { rule: "file-length", what: "501 lines of Rust", files: { "native/x/src/main.rs": lines(501, "//") } },
  { rule: "wire-length", what: "a wire.ts of 201 lines", files: { "apps/fluxvmd/src/wire.ts": lines(201) } },
  { rule: "function-length", what: "a function of 71 lines", files: core(`export function f(): void {\n${"f();\n".repeat(69)}}\n`) },
  {
    rule: "nesting",
    what: "four levels",
    files: core("export function f(a: boolean): void {\n  if (a) { for (;;) { while (a) { if (a) f(a); } } }\n}\n"),
  },
  { rule: "reason", what: "`as` without a reason", files: core("export const f = (x: unknown): string => x as string;\n") },
  { rule: "reason", what: "`!` without a reason", files: core("export const f = (x?: string): string => x!;\n") },
  {
    rule: "reason",
    what: "a dropped promise without a reason",
    files: core("export function f(p: () => Promise<void>): void {\n  void p();\n}\n"),
  },
  { rule: "reason", what: "a lint rule off without a reason", files: core("// oxlint-disable-next-line no-eval\nexport {};\n") },
  { rule: "index", what: "logic in index.ts", files: { "packages/core/src/index.ts": "export const x = 1;\n" } },
  { rule: "index", what: "a star in index.ts", files: { "packages/core/src/index.ts": 'export * from "./one.ts";\n' } },
  { rule: "header", what: "a class in a file without a header", files: core("export class Thing {\n  #x = 1;\n}\n") },
  {
    rule: "exports",
    what: "a third export",
    files: { "packages/core/package.json": manifest("core", { exports: { "./extra": "./src/one.ts" } }) },
  },
  {
    rule: "exports",
    what: "an app with exports",
    files: { "apps/fluxvmd/package.json": manifest("fluxvmd", { dependencies: { "@fluxvm/engine": "*" } }) },
  },
  { rule: "manifest", what: "a package under another name", files: { "packages/core/package.json": manifest("kernel") } },
  { rule: "readme", what: "a README of 61 lines", files: { "packages/core/README.md": lines(61, "x") } },
  { rule: "readme", what: "a crate without README", files: { "native/x/Cargo.toml": "" } },
  {
    rule: "test-left-out",
    what: "test.only",
    files: { "packages/core/src/x.test.ts": 'import { test } from "node:test";\ntest.only("x", () => undefined);\n' },
  },
  {
    rule: "test-left-out",
    what: "a skip option",
    files: { "packages/core/src/x.test.ts": 'test("x", { skip: true }, () => undefined);\n' },
  },
  { rule: "unfinished", what: "a note to self", files: core(`// ${split("TO.DO")} later\nexport {};\n`) },
  { rule: "registry-host", what: "a registry's host", files: { ".npmrc": `registry=https://${split("regis.try")}.npmjs.org/\n` } },
  { rule: "machine-path", what: "a path of this machine", files: { "docs/x.md": `cd /${split("wo.rk")}/main\n` } },
  { rule: "file-size", what: "a file over 1 MiB", files: { "docs/x.bin": "x".repeat((1 << 20) + 1) } },
  { rule: "place", what: "a source outside any package", files: { "packages/loose.ts": "export {};\n" } },
  { rule: "document-path", what: "a path that is not there", files: { "docs/x.md": `See ${TICK}packages/gone/src/${TICK}.\n` } },
  {
    rule: "document-path",
    what: "a box of a diagram that is not there",
    files: { "docs/x.md": "```mermaid\ngraph TD\n  a[packages/gone]\n```\n" },
  },
  {
    rule: "crate-map",
    what: "a crate without a place",
    files: { "docs/architecture/crate-map.md": "| fluxvm-core | `packages/core` | |\n| fluxvm-api | | |\n" },
  },
  {
    rule: "document-word",
    what: "an error code nobody gives",
    files: {
      "packages/core/src/errors/catalogue.ts": "export const C = {\n  VM_GONE: 1,\n};\n",
      "docs/x.md": `${TICK}VM_GONE${TICK}, ${TICK}VM_WENT${TICK}.\n`,
    },
  },
  { rule: "document-word", what: "a metric nobody counts", files: { "docs/x.md": `${TICK}fluxvm_moons_total{phase="new"}${TICK}\n` } },
  { rule: "document-link", what: "a dead link", files: { "docs/x.md": "See [y](y.md).\n" } },
];

for (const { rule, what, files } of PLANTS) {
  test(`${rule}: ${what}`, () => {
    const found = check(files);
    assert.ok(
      found.some((line) => line.includes(`: ${rule}: `)),
      found.join("\n") || "nothing found",
    );
  });
}

test("a README that is missing", () => {
  const found = check({ "packages/vmm/package.json": manifest("vmm") });
  assert.deepEqual(found, ["packages/vmm/README.md: readme: each package has a README.md: what it is, what it is not, read order"]);
});

const FINE: readonly { readonly what: string; readonly files: Files }[] = [
  {
    what: "reasons on the same or the line before",
    files: core(
      "// the caller checked it\nexport const f = (x: unknown): string => x as string;\nexport const g = (x?: string): string => x!; // never empty here\n",
    ),
  },
  {
    what: "units at the end, and acronyms as words",
    files: core("export const f = (timeoutMs: number, sizeBytes: number): number => timeoutMs + sizeBytes;\nexport type VmId = string;\n"),
  },
  { what: "as const and satisfies", files: core("export const f = { a: 1 } as const satisfies object;\n") },
  { what: "a long function in a test", files: { "packages/core/src/x.test.ts": `export function f(): void {\n${"f();\n".repeat(90)}}\n` } },
  {
    what: "else-if chains",
    files: core(
      "export function f(a: number): void {\n  if (a === 1) f(1);\n  else if (a === 2) f(2);\n  else if (a === 3) f(3);\n  else if (a === 4) f(4);\n}\n",
    ),
  },
  {
    what: "a backend's own name in its package",
    files: {
      "packages/backend-qemu/package.json": manifest("backend-qemu"),
      "packages/backend-qemu/README.md": "",
      "packages/backend-qemu/src/x.ts": 'export const f = (b: string): boolean => b === "qemu";\n',
    },
  },
  {
    what: "type cycles between files",
    files: {
      ...core('import type { B } from "./worse.ts";\nexport type A = B | 1;\n'),
      "packages/core/src/worse.ts": 'import type { A } from "./bad.ts";\nexport type B = A | 2;\n',
    },
  },
  {
    what: "patterns and examples in documents",
    files: { "docs/x.md": "Files `packages/*/src/index.ts`, `packages/backend-<name>/`.\n\n```sh\ncat packages/gone/x\n```\n" },
  },
  { what: "an int test that starts processes", files: { "packages/store/src/x.int.test.ts": 'import "node:child_process";\n' } },
  { what: "a long list in wire.ts", files: { "apps/fluxvmd/src/wire.ts": `export function wire(): void {\n${"wire();\n".repeat(90)}}\n` } },
  { what: "an error class without header", files: core("export class OddError extends Error {}\n") },
];

for (const { what, files } of FINE) {
  test(`no problem: ${what}`, () => {
    assert.deepEqual(check(files), []);
  });
}

test("the table has no cycle and names only packages it has a row for", () => {
  const graph = new Map(
    Object.entries(LAYERS).map(([name, a]) => [name, new Set([...a.imports, ...(a.types ?? [])].filter((to) => to !== "*"))]),
  );
  assert.deepEqual(findCycles(graph), []);
  for (const targets of graph.values()) for (const to of targets) assert.ok(to in LAYERS, to);
});

test("the table says what the architecture says", () => {
  const cases: [string, string, "yes" | "types" | "no"][] = [
    ["telemetry", "contracts", "no"],
    ["contracts", "telemetry", "yes"],
    ["store", "host", "yes"],
    ["store", "guest-channel", "no"],
    ["image", "network", "no"],
    ["image", "customize", "yes"],
    ["engine", "vmm", "yes"],
    ["engine", "image", "types"],
    ["engine", "manager", "no"],
    ["manager", "vmm", "types"],
    ["manager", "host", "no"],
    ["api", "manager", "no"],
    ["fluxctl", "host", "no"],
    ["fluxctl", "sdk", "yes"],
    ["sdk", "contracts", "yes"],
    ["imp-sandbox", "sdk", "no"],
    ["fluxvmd", "manager", "yes"],
    ["fluxvmd", "fluxctl", "no"],
    ["simulation", "engine", "yes"],
  ];
  for (const [from, to, expected] of cases) assert.equal(decideImport(from, to), expected, `${from} -> ${to}`);
  for (const name of BACKEND_NAMES) {
    assert.equal(decideImport("engine", `backend-${name}`), "no");
    assert.equal(decideImport(`backend-${name}`, "backend-qemu"), name === "qemu" ? "yes" : "no");
  }
});

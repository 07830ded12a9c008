import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { test, type TestContext } from "node:test";

const LAUNCHER = resolve(import.meta.dirname, "../../bin/fluxctl");

function makeFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "launch er-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

function help(command: string, cwd: string): ReturnType<typeof spawnSync> {
  // a PATH without any node: the launcher must bring its own
  return spawnSync(command, ["--help"], { cwd, env: { PATH: "/usr/bin:/bin", HOME: "/nonexistent" }, encoding: "utf8" });
}

test("it starts fluxctl from any directory, through chains of links, absolute and relative", (t) => {
  const folder = makeFolder(t);
  symlinkSync(LAUNCHER, join(folder, "one"));
  mkdirSync(join(folder, "deep"));
  symlinkSync("../one", join(folder, "deep/two"));
  for (const path of [LAUNCHER, join(folder, "one"), join(folder, "deep/two")]) {
    const result = help(path, folder);
    assert.equal(result.status, 0, String(result.stderr));
    assert.match(String(result.stdout), /^Usage: fluxctl/);
  }
});

test("before set-up it says what to run", (t) => {
  const folder = makeFolder(t);
  mkdirSync(join(folder, "bin"));
  copyFileSync(LAUNCHER, join(folder, "bin/fluxctl"));
  const result = help(join(folder, "bin/fluxctl"), "/");
  assert.equal(result.status, 1);
  assert.match(String(result.stderr), /not set up yet; run: sh .*tools\/setup\/setup\.sh/);
});

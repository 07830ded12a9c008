import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { findProcesses, findThings, RUN_VARIABLE, takeSnapshot } from "./leftovers.ts";

test("a process left behind is found by its environment and by its arguments, another is not", async () => {
  const folder = mkdtempSync(join(tmpdir(), "left-"));
  const mark = { id: `run-${process.pid}-x`, folder };
  const children = [
    spawn("sleep", ["60"], { env: { ...process.env, [RUN_VARIABLE]: mark.id } }),
    spawn(process.execPath, ["-e", "setTimeout(() => {}, 60_000)", join(folder, "socket")], { env: {}, stdio: "ignore" }),
    spawn("sleep", ["60"], { env: {} }),
  ];
  try {
    await Promise.all(children.map(async (child): Promise<unknown> => await once(child, "spawn")));
    const found = findProcesses(mark).map((p) => p.pid);
    const expected = children.slice(0, 2).map((c) => c.pid);
    assert.ok(
      expected.every((pid) => found.includes(pid ?? 0)),
      `${found.join(" ")} lacks ${expected.join(" ")}`,
    );
    assert.ok(!found.includes(children[2]?.pid ?? 0));
  } finally {
    for (const child of children) child.kill("SIGKILL");
    rmSync(folder, { recursive: true });
  }
  for (const child of children) if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  assert.deepEqual(findProcesses(mark), []);
});

test("nothing new since the snapshot is no finding", () => {
  assert.deepEqual(findThings(takeSnapshot()), []);
});

import assert from "node:assert/strict";
import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@fluxvm/host";
import type { LaunchPlan } from "@fluxvm/vmm";
import { describeEarlyEnd, parseDiagnostics, readDiagnostics } from "./launch-failure.ts";
import { parseProcessStat } from "./proc-scan.ts";

const PLAN = { vmId: "vm-1", workspace: "/state/vms/vm-1" } as LaunchPlan; // only these are read

test("the last lines are kept, without the program's name", () => {
  const lines = parseDiagnostics(["", "noise", ...Array.from({ length: 5 }, (_, i) => `qemu-system-x86_64: line ${i}`), ""].join("\n"));
  assert.deepEqual(lines, ["line 0", "line 1", "line 2", "line 3", "line 4"]);
  assert.equal(parseDiagnostics("x".repeat(1000))[0]?.length, 300);
});

test("a port in use is an error of its own", () => {
  const error = describeEarlyEnd(PLAN, { code: 1 }, ["-netdev user,id=net0: Could not set up host forwarding rule 'tcp:127.0.0.1:80-:80'"]);
  assert.equal(error.code, "PORT_IN_USE");
  assert.match(error.message, /tcp:127\.0\.0\.1:80-:80/);
});

test("the message names files, not the host's folders", () => {
  const error = describeEarlyEnd(PLAN, { code: 1 }, [
    "Could not open '/state/vms/vm-1/root.qcow2': /data/images/ab/disk.raw: Permission denied",
  ]);
  assert.equal(error.code, "VM_LAUNCH_FAILED");
  assert.match(error.message, /exit code 1.*'root\.qcow2': disk\.raw: Permission denied/);
  assert.doesNotMatch(error.message, /state|data/);
});

test("a QEMU that died without a word", () => {
  assert.match(describeEarlyEnd(PLAN, { signal: "SIGSYS" }, []).message, /SIGSYS.*wrote nothing/);
});

test("the log is read, a link in its place is not", async () => {
  const folder = await mkdtemp("/tmp/fluxvm-log-");
  try {
    await writeFile(join(folder, "secret"), "root:x\n");
    await writeFile(join(folder, "qemu.log"), "qemu-system-x86_64: no\n");
    await symlink(join(folder, "secret"), join(folder, "link"));
    assert.deepEqual(await readDiagnostics(join(folder, "qemu.log"), systemClock), ["no"]);
    assert.deepEqual(await readDiagnostics(join(folder, "link"), systemClock), []);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("a process's name may hold anything", () => {
  const fields = ["S", ...Array.from({ length: 10 }, () => "0"), "7", "5", ...Array.from({ length: 6 }, () => "0"), "4242", "0"];
  assert.deepEqual(parseProcessStat(`17 (a) R (b)) ${fields.join(" ")}`), { state: "S", cpuTicks: 12, startTimeTicks: 4242 });
  for (const text of ["", "17", "17 (x", "17 (x) S 1 2"]) assert.equal(parseProcessStat(text), undefined, text);
});

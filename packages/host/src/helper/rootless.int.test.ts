/** The helper without root: the same calls work with less, and say what was left out. */
import assert from "node:assert/strict";
import { chmodSync, chownSync, copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { createMemoryLogger } from "@fluxvm/telemetry/testing";
import { systemClock } from "../clock/system-clock.ts";
import type { ProcessSpec } from "../process/process-spec.ts";
import { findNativeBinary, requireRoot } from "../testing/gates.ts";
import type { HostHelper } from "./host-helper.ts";
import { startHostHelper } from "./start-host-helper.ts";

const UID = 64_120;
const options = { signal: AbortSignal.timeout(60_000) };
const canDrop = process.getuid?.() === 0;
let helper: HostHelper;
let dir: string;

before(async () => {
  if (!canDrop) return;
  dir = mkdtempSync("/tmp/fluxvm-rootless-");
  chownSync(dir, UID, UID);
  const binary = join(dir, "helper");
  copyFileSync(findNativeBinary("fluxvm-host-helper"), binary);
  const wrapper = join(dir, "wrapper");
  writeFileSync(wrapper, `#!/bin/sh\nexec /usr/bin/setpriv --reuid ${UID} --regid ${UID} --clear-groups ${binary} "$@"\n`);
  for (const path of [binary, wrapper]) chmodSync(path, 0o755);
  helper = await startHostHelper({ binaryPath: wrapper, logger: createMemoryLogger().logger, clock: systemClock });
});
after(async () => {
  if (!canDrop) return;
  await helper.close();
  rmSync(dir, { recursive: true, force: true });
});

async function run(script: string, more: Partial<ProcessSpec>): Promise<{ text: string; skipped: readonly string[] }> {
  const path = join(dir, `out-${Math.random()}`);
  const env = { PATH: "/usr/bin:/bin" };
  const process_ = await helper.launchProcess(
    { argv: ["/bin/sh", "-c", script], env, stdout: { kind: "file", path }, stderr: { kind: "stdout" }, ...more },
    options,
  );
  await process_.exited;
  return { text: readFileSync(path, "utf8"), skipped: process_.skipped };
}

test("a private root works by way of a user namespace", async (t) => {
  if (!requireRoot(t)) return;
  const mounts = [
    { kind: "bind", source: "/usr", target: "/usr", readonly: true },
    { kind: "symlink", source: "usr/bin", target: "/bin" },
    { kind: "symlink", source: "usr/lib", target: "/lib" },
    { kind: "symlink", source: "usr/lib64", target: "/lib64" },
  ] as const;
  const { text, skipped } = await run("id -u; ls /; echo x >/usr/x && echo written; grep CapEff /proc/self/status || echo no proc", {
    root: { mounts, devices: [{ path: "/dev/net/tun", optional: true }] },
    namespaces: { pid: true, ipc: true, uts: true },
    credentials: { uid: 64_121, gid: 64_121 },
    cgroups: ["/sys/fs/cgroup/pids"],
  });
  assert.ok(text.startsWith(`${UID}\n`), text);
  assert.deepEqual(skipped, ["credentials", "cgroup:/sys/fs/cgroup/pids"]);
  assert.ok(!text.includes("written") && !text.includes("etc") && text.includes("no proc"), text);
});

test("without a root of its own a process runs, and tells which namespaces it lacks", async (t) => {
  if (!requireRoot(t)) return;
  const { text, skipped } = await run("id -u; grep NoNewPrivs /proc/self/status", { namespaces: { pid: true, ipc: true } });
  assert.ok(text.startsWith(`${UID}\n`) && text.includes("NoNewPrivs:\t1"), text);
  assert.deepEqual(skipped, ["namespaces.pid", "namespaces"]);
});

/** Cgroups on the real host: limits hold, members are found, killed and removed. */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import { createMemoryLogger } from "@fluxvm/telemetry/testing";
import { systemClock } from "../clock/system-clock.ts";
import type { HostHelper } from "../helper/host-helper.ts";
import { startHostHelper } from "../helper/start-host-helper.ts";
import { findNativeBinary, requireRoot } from "../testing/gates.ts";
import { openVmCgroups, type VmCgroups } from "./vm-cgroups.ts";

const options = { signal: AbortSignal.timeout(60_000) };
const instanceId = `test-${process.pid}`;
let helper: HostHelper;
let cgroups: VmCgroups;

before(async () => {
  helper = await startHostHelper({
    binaryPath: findNativeBinary("fluxvm-host-helper"),
    logger: createMemoryLogger().logger,
    clock: systemClock,
  });
  cgroups = await openVmCgroups({ instanceId, helper });
});
after(async () => {
  for (const vmId of await cgroups.listVmCgroups(options)) await cgroups.removeVmCgroup(vmId, options);
  await cgroups.removeInstance(options);
  await helper.close();
});

test("a cgroup is made, found, used, and removed with every member, however many times", async (t) => {
  if (!requireRoot(t)) return;
  const limits = { memoryMaxBytes: 128 << 20, cpuQuotaPercent: 50, pidsMax: 50 };
  const { dirs } = await cgroups.ensureVmCgroup("vm-a", limits, options);
  assert.deepEqual((await cgroups.ensureVmCgroup("vm-a", limits, options)).dirs, dirs);
  await cgroups.ensureVmCgroup("vm-b", {}, options);
  assert.deepEqual(await cgroups.listVmCgroups(options), ["vm-a", "vm-b"]);
  // A shell that forks children which would outlive it.
  const tree = await helper.launchProcess(
    { argv: ["/bin/sh", "-c", "for i in 1 2 3 4; do (setsid sleep 1000 &) ; done; exec sleep 1000"], cgroups: dirs },
    options,
  );
  const sleepers = (): string[] => {
    const pids = readFileSync(join(dirs[0] ?? "", "cgroup.procs"), "utf8")
      .trim()
      .split("\n");
    return pids.filter((pid) => existsSync(`/proc/${pid}`) && readFileSync(`/proc/${pid}/comm`, "utf8") === "sleep\n");
  };
  while (sleepers().length < 5) await systemClock.sleep(5, options);
  const members = sleepers();
  assert.ok(((await cgroups.readUsage("vm-a", options)).pids ?? 5) >= 5);
  assert.ok(members.includes(String(tree.identity.pid)));
  await cgroups.removeVmCgroup("vm-a", options);
  assert.deepEqual(await tree.exited, { signal: "SIGKILL" });
  for (const pid of members) assert.ok(!existsSync(`/proc/${pid}/exe`) || readFileSync(`/proc/${pid}/stat`, "utf8").includes(") Z"), pid);
  assert.ok(dirs.every((dir) => !existsSync(dir)));
  await cgroups.removeVmCgroup("vm-a", options);
  assert.deepEqual(await cgroups.listVmCgroups(options), ["vm-b"]);
});

test("the memory and process limits hold", async (t) => {
  if (!requireRoot(t)) return;
  const { dirs, off } = await cgroups.ensureVmCgroup("vm-limits", { memoryMaxBytes: 64 << 20, pidsMax: 8 }, options);
  if (off.length > 0) return t.skip(`not on this host: ${off.join(", ")}`);
  const dir = mkdtempSync("/tmp/fluxvm-cgroup-");
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const eater = await helper.launchProcess(
    { argv: [process.execPath, "-e", "const all = []; for (;;) all.push(Buffer.alloc(1 << 20, 1));"], cgroups: dirs },
    options,
  );
  const exit = await eater.exited;
  assert.notEqual(exit.code, 0, JSON.stringify(exit));
  const path = join(dir, "forks");
  const forker = await helper.launchProcess(
    {
      argv: ["/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 5 & done; wait"],
      cgroups: dirs,
      stderr: { kind: "file", path },
    },
    options,
  );
  await forker.exited;
  assert.match(readFileSync(path, "utf8"), /fork/i);
});

test("two instances never see each other's", async (t) => {
  if (!requireRoot(t)) return;
  const other = await openVmCgroups({ instanceId: `${instanceId}-other`, helper });
  await other.ensureVmCgroup("vm-a", {}, options);
  await cgroups.removeVmCgroup("vm-a", options);
  assert.deepEqual(await other.listVmCgroups(options), ["vm-a"]);
  await other.removeVmCgroup("vm-a", options);
  await other.removeInstance(options);
  assert.deepEqual(await other.listVmCgroups(options), []);
});

test("a name with a path in it is refused", async () => {
  for (const bad of ["..", "a/b", "", ".hidden", "a b", "x".repeat(200)]) {
    await assert.rejects(cgroups.ensureVmCgroup(bad, {}, options), (error) => isPlatformError(error, "REQUEST_INVALID"), bad);
    await assert.rejects(cgroups.removeVmCgroup(bad, options), (error) => isPlatformError(error, "REQUEST_INVALID"), bad);
    await assert.rejects(openVmCgroups({ instanceId: bad, helper }), (error) => isPlatformError(error, "REQUEST_INVALID"), bad);
  }
});

test("a host without cgroups says what is off and goes on", async (t) => {
  const dir = mkdtempSync("/tmp/fluxvm-cgroup-");
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  writeFileSync(join(dir, "mountinfo"), "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n");
  const none = await openVmCgroups({ instanceId, helper, mountinfoPath: join(dir, "mountinfo") });
  assert.equal(none.mode, "none");
  assert.deepEqual(await none.ensureVmCgroup("vm-a", { memoryMaxBytes: 1, pidsMax: 1 }, options), {
    dirs: [],
    off: ["memoryMaxBytes", "pidsMax"],
  });
  assert.deepEqual(await none.readUsage("vm-a", options), {});
  await none.removeVmCgroup("vm-a", options);
});

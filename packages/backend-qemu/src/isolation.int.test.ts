/** What a VM's process can reach on the host: with the real QEMU, as root. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { test, type TestContext } from "node:test";
import { runTool, systemClock } from "@fluxvm/host";
import { requireRoot, requireTool } from "@fluxvm/host/testing";
import type { LaunchPlan, VmProcess } from "@fluxvm/vmm";
import { createQemuWorld, type QemuWorld } from "./testing/index.ts";

const call = (): { readonly signal: AbortSignal } => ({ signal: AbortSignal.timeout(30_000) });
const MAC = "52:54:00:00:00:01";

interface Started {
  readonly plan: LaunchPlan;
  readonly vm: VmProcess;
}

async function start(world: QemuWorld, changes: Partial<LaunchPlan> = {}): Promise<Started> {
  const plan = await world.plan({ kind: "idle" }, changes);
  const vm = await world.backend.launch(plan, call());
  await vm.boot(call());
  return { plan, vm };
}

async function withWorld(t: TestContext, run: (world: QemuWorld) => Promise<void>): Promise<void> {
  if (!requireRoot(t) || !requireTool(t, "qemu-system-x86_64")) return;
  const world = await createQemuWorld({ accelerator: "tcg" });
  try {
    await run(world);
  } finally {
    await world.close();
  }
}

function statusOf(pid: number, key: string): string {
  return new RegExp(`^${key}:[ \\t]*(.*?)[ \\t]*$`, "m").exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? "";
}

/** Runs a shell line as a VM's user on the host; its exit code. */
async function asUser(plan: LaunchPlan, line: string): Promise<number> {
  const okCodes = Array.from({ length: 255 }, (_, code) => code + 1);
  const result = await runTool({
    command: "/bin/sh",
    args: ["-c", line],
    uid: plan.uid,
    gid: plan.gid,
    cwd: "/",
    timeoutMs: 10_000,
    okCodes,
    signal: call().signal,
  });
  return result.code;
}

test("the process has its own user, no capabilities, no way to gain any, and QEMU's sandbox", async (t) => {
  await withWorld(t, async (world) => {
    const { plan, vm } = await start(world);
    const { pid } = vm.record;
    assert.equal(statusOf(pid, "Uid"), Array(4).fill(plan.uid).join("\t"));
    assert.equal(statusOf(pid, "Gid"), Array(4).fill(plan.gid).join("\t"));
    assert.equal(statusOf(pid, "Groups"), "");
    for (const set of ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"]) assert.match(statusOf(pid, set), /^0+$/, set);
    assert.equal(statusOf(pid, "NoNewPrivs"), "1");
    assert.equal(statusOf(pid, "Seccomp"), "2");
    for (const thread of readdirSync(`/proc/${pid}/task`)) assert.equal(statusOf(Number(thread), "Seccomp"), "2");
  });
});

test("the process is a session and process group of its own, outside the daemon's cgroup and namespaces", async (t) => {
  await withWorld(t, async (world) => {
    const { plan, vm } = await start(world);
    const { pid } = vm.record;
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
    const ours = readFileSync("/proc/self/stat", "utf8").split(") ")[1]?.split(" ") ?? [];
    assert.notEqual(fields[2], ours[2], "process group");
    assert.notEqual(fields[3], ours[3], "session");
    assert.match(readFileSync(`/proc/${pid}/cgroup`, "utf8"), new RegExp(`/fluxvm/${world.instanceId}/${plan.vmId}$`, "m"));
    for (const namespace of ["mnt", "ipc", "uts", "net"]) {
      assert.notEqual(readlinkSync(`/proc/${pid}/ns/${namespace}`), readlinkSync(`/proc/self/ns/${namespace}`), namespace);
    }
    const user = await start(world, { network: { mode: "user", mac: MAC, forwards: [] } });
    assert.equal(
      readlinkSync(`/proc/${user.vm.record.pid}/ns/net`),
      readlinkSync("/proc/self/ns/net"),
      "user mode goes out through the host",
    );
  });
});

/** A folder is not there, or holds nothing but the way to what the VM is given: this tree may lie below /root or /home. */
function assertOnlyOwn(root: string, folder: string, own: readonly string[]): void {
  const below = own.filter((path) => path.startsWith(`${folder}/`));
  if (below.length === 0) {
    if (!own.includes(folder)) assert.throws(() => readdirSync(`${root}${folder}`), { code: "ENOENT" }, folder);
    return;
  }
  const next = [...new Set(below.map((path) => path.slice(folder.length + 1).split("/")[0] ?? ""))];
  assert.deepEqual(readdirSync(`${root}${folder}`).toSorted(), next.toSorted(), folder);
  for (const name of next) assertOnlyOwn(root, `${folder}/${name}`, own);
}

test("the process sees its own files and nothing else of the host", async (t) => {
  await withWorld(t, async (world) => {
    const [a, b] = [await start(world), await start(world)];
    const root = `/proc/${a.vm.record.pid}/root`;
    assert.deepEqual(readdirSync(`${root}${world.folder}`), [a.plan.vmId]);
    assert.deepEqual(readdirSync(`${root}/dev`).toSorted(), ["full", "null", "random", "urandom", "zero"]);
    assert.ok(a.plan.boot.kind === "kernel");
    const own = [a.plan.boot.kernelPath, a.plan.workspace];
    for (const folder of ["home", "root", "var", "proc", "sys", "run", "boot", "tmp"]) assertOnlyOwn(root, `/${folder}`, own);
    assert.throws(() => statSync(`${root}/etc/shadow`), { code: "ENOENT" });
    assert.throws(() => statSync(`${root}${b.plan.workspace}`), { code: "ENOENT" });
    const writable = readFileSync(`/proc/${a.vm.record.pid}/mountinfo`, "utf8")
      .split("\n")
      .filter((line) => /^\d+ \d+ \S+ \S+ \S+ rw/.test(line))
      .map((line) => line.split(" ")[4] ?? "")
      .filter((target) => !target.startsWith("/dev/"));
    assert.deepEqual(writable, [a.plan.workspace]);
  });
});

test("a process with one VM's user can open, signal or trace nothing of another VM", async (t) => {
  await withWorld(t, async (world) => {
    const [a, b] = [await start(world), await start(world)];
    const { pid } = b.vm.record;
    const { workspace } = b.plan;
    assert.equal(await asUser(b.plan, `kill -0 ${pid} && ls ${workspace} && test -S ${workspace}/qmp.sock`), 0, "its own user can");
    for (const line of [
      `kill -0 ${pid}`,
      `kill -9 ${pid}`,
      `ls ${workspace}`,
      `cat ${workspace}/console.log`,
      `touch ${workspace}/x`,
      `cat /proc/${pid}/mem`,
      `cat /proc/${pid}/environ`,
      `ls /proc/${pid}/root/`,
      `ls /proc/${pid}/fd/`,
      `cat /proc/${pid}/maps | grep .`,
    ]) {
      assert.notEqual(await asUser(a.plan, `${line} 2>/dev/null`), 0, line);
    }
    assert.equal(await b.vm.status(call()), "running");
  });
});

test("a kill from outside is noticed and says by which signal", async (t) => {
  await withWorld(t, async (world) => {
    const { vm } = await start(world);
    const killedMs = systemClock.bootMs();
    world.killFromOutside(vm.record.pid);
    const exit = await vm.exited;
    t.diagnostic(`noticed after ${Math.round(systemClock.bootMs() - killedMs)} ms`);
    assert.deepEqual([exit.reason, exit.signal], ["killed", "SIGKILL"]);
  });
});

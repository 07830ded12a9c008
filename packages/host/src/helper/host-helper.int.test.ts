/** The real helper, as root: launching, watching, surviving, refusing. */
import assert from "node:assert/strict";
import { chmodSync, chownSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { after, before, test, type TestContext } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import { createMemoryLogger } from "@fluxvm/telemetry/testing";
import { openVmCgroups } from "../cgroup/vm-cgroups.ts";
import { systemClock } from "../clock/system-clock.ts";
import type { ProcessSpec } from "../process/process-spec.ts";
import { runTool } from "../process/run-tool.ts";
import { copyNode, findNativeBinary, requireRoot } from "../testing/gates.ts";
import { startHostHelper } from "./start-host-helper.ts";

const UID_A = 64_101;
const UID_B = 64_102;
const options = { signal: AbortSignal.timeout(120_000) };
const { logger, lines } = createMemoryLogger();
let helper: Awaited<ReturnType<typeof startHostHelper>>;
let dir: string;

before(async () => {
  helper = await startHostHelper({ binaryPath: findNativeBinary("fluxvm-host-helper"), logger, clock: systemClock });
  dir = mkdtempSync("/tmp/fluxvm-host-");
});
after(async () => {
  await helper.close();
  rmSync(dir, { recursive: true, force: true });
});

const shell = (script: string, more: Partial<ProcessSpec> = {}): ProcessSpec => ({
  argv: ["/bin/sh", "-c", script],
  env: { PATH: "/usr/bin:/bin" },
  ...more,
});

const privateRoot: NonNullable<ProcessSpec["root"]> = {
  mounts: [
    { kind: "bind", source: "/usr", target: "/usr", readonly: true },
    { kind: "symlink", source: "usr/bin", target: "/bin" },
    { kind: "symlink", source: "usr/lib", target: "/lib" },
    { kind: "symlink", source: "usr/lib64", target: "/lib64" },
    { kind: "proc", target: "/proc" },
  ],
};

const isolated = (uid: number): Partial<ProcessSpec> => ({
  credentials: { uid, gid: uid },
  namespaces: { pid: true, ipc: true, uts: true },
  root: privateRoot,
});

/** Runs a script in the given surroundings and gives what it printed. */
async function outputOf(script: string, more: Partial<ProcessSpec> = {}): Promise<string> {
  const path = join(dir, `out-${Math.random()}`);
  const process = await helper.launchProcess(
    shell(script, { stdout: { kind: "file", path }, stderr: { kind: "stdout" }, ...more }),
    options,
  );
  await process.exited;
  return existsSync(path) ? readFileSync(path, "utf8") : "";
}

/** Runs a script as that user, with the host's whole view and no confinement. */
async function runAs(uid: number, script: string): Promise<string> {
  const args = ["--reuid", String(uid), "--regid", String(uid), "--clear-groups", "sh", "-c", script];
  const { stdout } = await runTool({ command: "setpriv", args, timeoutMs: 10_000, okCodes: [1, 127], ...options });
  return stdout;
}

async function waitFor(what: string, check: () => boolean): Promise<void> {
  const endMs = systemClock.bootMs() + 10_000;
  while (!check()) {
    assert.ok(systemClock.bootMs() < endMs, `never happened: ${what}`);
    await systemClock.sleep(5);
  }
}

/** Live processes whose command line holds the mark. */
function findByMark(mark: string): string[] {
  return readdirSync("/proc").filter((entry) => {
    if (!/^\d+$/.test(entry) || Number(entry) === process.pid) return false;
    try {
      return readFileSync(`/proc/${entry}/cmdline`, "utf8").includes(mark);
    } catch {
      return false;
    }
  });
}

test("exit codes and signals are told", async () => {
  const one = await helper.launchProcess(shell("exit 7"), options);
  assert.deepEqual(await one.exited, { code: 7 });
  const two = await helper.launchProcess(shell("exec sleep 1000"), options);
  const startedMs = systemClock.bootMs();
  assert.deepEqual(await two.kill(options), { signal: "SIGKILL" });
  assert.ok(systemClock.bootMs() - startedMs < 500, "an exit is noticed at once");
  assert.equal(await two.signal("SIGTERM", options), false);
});

test("a process holds nothing it was not given", async (t) => {
  if (!requireRoot(t)) return;
  const text = await outputOf(
    "id -u; id -g; id -G; grep -E 'Cap(Prm|Bnd|Amb)|NoNewPrivs' /proc/self/status; ls -A /; ls /dev; ls /proc/self/fd; env; ulimit -c",
    {
      ...isolated(UID_A),
      env: { PATH: "/usr/bin:/bin", ONLY: "this" },
    },
  );
  const parts = text.split("\n").map((line) => line.trim());
  assert.deepEqual(parts.slice(0, 3), [String(UID_A), String(UID_A), String(UID_A)]);
  for (const set of ["CapPrm", "CapBnd", "CapAmb"]) assert.ok(text.includes(`${set}:\t0000000000000000`), `${set} in ${text}`);
  assert.ok(text.includes("NoNewPrivs:\t1"));
  for (const name of ["bin", "dev", "lib", "lib64", "proc", "usr", "null", "full", "zero", "random", "urandom", "ONLY=this"]) {
    assert.ok(parts.includes(name), `${name} in ${text}`);
  }
  for (const name of ["etc", "root", "tmp", "work", "kvm", "mem", "4", "5"]) assert.ok(!parts.includes(name), `${name} in ${text}`);
});

test("a read-only bind cannot be written, its root neither, a writable one can", async (t) => {
  if (!requireRoot(t)) return;
  const shared = mkdtempSync(join(dir, "shared-"));
  const mounts = [
    ...privateRoot.mounts,
    { kind: "bind", source: shared, target: "/ro", readonly: true } as const,
    { kind: "bind", source: shared, target: "/rw" } as const,
  ];
  const text = await outputOf("echo x >/ro/a && echo ro written; echo x >/top && echo top written; echo x >/rw/b && echo rw written", {
    root: { mounts },
  });
  assert.deepEqual(readdirSync(shared), ["b"]);
  assert.ok(!text.includes("ro written") && !text.includes("top written") && text.includes("rw written"), text);
});

test("a device asked for belongs to the process, whoever owns it on the host", async (t) => {
  if (!requireRoot(t)) return;
  const before = statSync("/dev/loop-control").uid;
  const text = await outputOf("stat -c '%u %a %F' /dev/loop-control; : </dev/loop-control && echo opened", {
    ...isolated(UID_A),
    root: { ...privateRoot, devices: [{ path: "/dev/loop-control" }, { path: "/dev/not-there", optional: true }] },
  });
  assert.ok(text.includes(`${UID_A} 600 character special file`) && text.includes("opened"), text);
  assert.equal(statSync("/dev/loop-control").uid, before);
});

test("with the uid of one VM nothing of another can be opened, signalled or traced", async (t) => {
  if (!requireRoot(t)) return;
  chmodSync(dir, 0o711);
  const secret = mkdtempSync(join(dir, "vm-b-"));
  chownSync(secret, UID_B, UID_B);
  const victim = await helper.launchProcess(
    shell("echo secret >/vm/disk; while :; do sleep 1; done", {
      ...isolated(UID_B),
      root: { mounts: [...privateRoot.mounts, { kind: "bind", source: secret, target: "/vm" }] },
    }),
    options,
  );
  t.after(async () => void (await victim.kill(options)));
  await waitFor("the secret", () => existsSync(join(secret, "disk")));
  const { pid } = victim.identity;
  const attack = [
    `kill -0 ${pid} && echo SIGNALLED`,
    `cat /proc/${pid}/environ >/dev/null && echo ENVIRON`,
    `head -c1 /proc/${pid}/mem && echo MEM`,
    `ls /proc/${pid}/root/vm && echo ROOT`,
    `ls /proc/${pid}/fd && echo FDS`,
    `cat ${secret}/disk && echo DISK`,
    `strace -p ${pid} -o /dev/null -e trace=none & sleep 0.3; kill $! 2>/dev/null && echo TRACED`,
    `echo end`,
  ].join("\n");
  // The attack works: the VM's own user can do these when it is not confined.
  const own = await runAs(UID_B, attack);
  for (const word of ["SIGNALLED", "ENVIRON", "DISK"]) assert.ok(own.includes(word), `${word} not in ${own}`);
  // As that user with nothing else in the way, then launched with the host's view, then launched as a VM is.
  const views = [
    await runAs(UID_A, attack),
    await outputOf(attack, { credentials: { uid: UID_A, gid: UID_A } }),
    await outputOf(attack, isolated(UID_A)),
  ];
  for (const text of views) {
    assert.ok(text.includes("end"), text);
    for (const word of ["SIGNALLED", "ENVIRON", "MEM", "ROOT", "FDS", "DISK", "TRACED"])
      assert.ok(!text.includes(word), `${word} in ${text}`);
  }
});

test("abstract sockets and signals of others are out of reach where Landlock can scope them", async (t) => {
  if (!requireRoot(t)) return;
  const { stdout } = await runTool({
    command: findNativeBinary("fluxvm-host-helper"),
    args: ["probe", "landlock"],
    timeoutMs: 5000,
    ...options,
  });
  const { data } = JSON.parse(stdout) as { data?: { abi?: number } };
  if ((data?.abi ?? 0) < 6) return t.skip("needs Landlock ABI 6");
  const open = mkdtempSync("/tmp/fluxvm-host-");
  t.after(() => rmSync(open, { recursive: true, force: true }));
  chmodSync(open, 0o755);
  const name = `\0fluxvm-abstract-${process.pid}`;
  const server = createServer((socket) => socket.end("REACHED")).listen(name);
  t.after(() => server.close());
  const client = `require("net").connect("\\0" + process.argv[1]).on("data", (d) => console.log(String(d))).on("error", (e) => console.log(e.code));`;
  const bystander = await helper.launchProcess(shell("exec sleep 1000", { credentials: { uid: UID_A, gid: UID_A } }), options);
  t.after(async () => void (await bystander.kill(options)));
  const text = await outputOf(
    `'${copyNode(open)}' -e '${client}' '${name.slice(1)}'; kill -0 ${bystander.identity.pid} && echo SIGNALLED; umask; echo end`,
    {
      credentials: { uid: UID_A, gid: UID_A },
    },
  );
  assert.ok(text.includes("EPERM") && text.includes("0077") && text.includes("end"), text);
  assert.ok(!text.includes("REACHED") && !text.includes("SIGNALLED"), text);
});

test("a process survives its helper, is adopted by identity, and its end is noticed", async () => {
  const survivor = await helper.launchProcess(shell("exec sleep 1000"), options);
  const oldPid = helper.pid;
  assert.ok(oldPid !== undefined);
  process.kill(oldPid, "SIGKILL");
  await waitFor("another helper", () => helper.pid !== undefined && helper.pid !== oldPid);
  const adopted = await helper.adoptProcess(survivor.identity, options);
  assert.ok(adopted !== undefined);
  // How it ended is told although it is nobody's child any more: both handles are watched by the new helper.
  assert.equal(await adopted.signal("SIGTERM", options), true);
  const ends = await Promise.all([adopted.exited, survivor.exited]);
  if (process.getuid?.() === 0) assert.deepEqual(ends, [{ signal: "SIGTERM" }, { signal: "SIGTERM" }]);
  assert.equal(await helper.adoptProcess(survivor.identity, options), undefined);
});

test("an end during the helper's absence is found out", async () => {
  const process_ = await helper.launchProcess(shell("exec sleep 1000"), options);
  const oldPid = helper.pid;
  assert.ok(oldPid !== undefined);
  process.kill(oldPid, "SIGKILL");
  process.kill(process_.identity.pid, "SIGKILL");
  const exit = await process_.exited;
  assert.ok(exit.signal === "SIGKILL" || exit.unknown === true, JSON.stringify(exit));
});

test("an identity that does not match is neither signalled nor adopted", async (t) => {
  const live = await helper.launchProcess(shell("exec sleep 1000"), options);
  t.after(async () => void (await live.kill(options)));
  const { identity } = live;
  for (const wrong of [
    { ...identity, startTimeTicks: identity.startTimeTicks + 1 },
    { ...identity, bootId: "11111111-1111-4111-8111-111111111111" },
    { ...identity, pidNamespaceInode: identity.pidNamespaceInode + 1 },
    { ...identity, pid: 4_194_303 },
  ]) {
    assert.equal(await helper.adoptProcess(wrong, options), undefined);
  }
  assert.ok((await helper.adoptProcess(identity, options)) !== undefined);
});

test("a rotated log stays within its bound, keeps the newest and ends with its writers", async (t) => {
  const logs = mkdtempSync(join(dir, "logs-"));
  const log = { kind: "rotated", path: join(logs, "vm.log"), maxBytes: 10_000, keep: 2 } as const;
  const script = "i=0; while [ $i -lt 5000 ]; do echo line $i of the log; i=$((i+1)); done; echo on three >&3";
  const extra = { kind: "rotated", fd: 3, path: join(logs, "three.log"), maxBytes: 10_000, keep: 0 } as const;
  const process_ = await helper.launchProcess(shell(script, { stdout: log, fds: [extra] }), options);
  assert.deepEqual(await process_.exited, { code: 0 });
  await waitFor("the last line", () => existsSync(log.path) && readFileSync(log.path, "utf8").endsWith("line 4999 of the log\n"));
  await waitFor("the extra log", () => existsSync(extra.path) && readFileSync(extra.path, "utf8") === "on three\n");
  const sizes = readdirSync(logs).map((name) => statSync(join(logs, name)).size);
  assert.equal(sizes.length, 4);
  assert.ok(
    sizes.every((size) => size <= 10_000),
    String(sizes),
  );
  await assertNoZombies(t);
});

async function assertNoZombies(_t: TestContext): Promise<void> {
  const { pid } = helper;
  await waitFor("children reaped", () => {
    const children = readdirSync(`/proc/${pid}/task`).map((task) => {
      try {
        return readFileSync(`/proc/${pid}/task/${task}/children`, "utf8").trim();
      } catch {
        return "";
      }
    });
    return children.join("") === "";
  });
}

test("a launch that fails names its step and leaves nothing", async (t) => {
  if (!requireRoot(t)) return;
  const logs = mkdtempSync(join(dir, "none-"));
  const mark = `fluxvm-mark-${process.pid}`;
  const good: ProcessSpec = {
    argv: ["/bin/sleep", "1000", mark],
    stdout: { kind: "rotated", path: join(logs, "x.log"), maxBytes: 4096, keep: 1 },
    ...isolated(UID_A),
  };
  const cases: readonly (readonly [string, string, ProcessSpec])[] = [
    ["exec", "HOST_TOOL_MISSING", { ...good, argv: ["/bin/nope", mark] }],
    ["exec", "HOST_TOOL_FAILED", { ...good, argv: ["/usr/lib", mark] }],
    ["mount:/x", "HOST_TOOL_FAILED", { ...good, root: { mounts: [{ kind: "bind", source: "/nope", target: "/x" }] } }],
    ["/dev/nope", "HOST_TOOL_FAILED", { ...good, root: { ...privateRoot, devices: [{ path: "/dev/nope" }] } }],
    ["cgroup", "HOST_TOOL_FAILED", { ...good, cgroups: ["/sys/fs/cgroup/pids/fluxvm-nope"] }],
    ["namespace", "HOST_TOOL_FAILED", { ...good, namespaces: { net: "/proc/self/nope" } }],
    ["cwd", "HOST_TOOL_FAILED", { ...good, cwd: "/nope" }],
    ["limits", "REQUEST_INVALID", { ...good, rlimits: { nope: 1 } as Record<string, number> }],
    ["credentials", "REQUEST_INVALID", { ...good, keepCapabilities: ["CAP_NOPE"] }],
    ["descriptors", "HOST_TOOL_FAILED", { ...good, fds: [{ kind: "open", fd: 5, path: "/nope" }] }],
    ["log", "HOST_TOOL_FAILED", { ...good, stderr: { kind: "file", path: "/nope/x" } }],
    ["spec", "REQUEST_INVALID", { ...good, argv: ["sleep"] }],
    ["spec", "REQUEST_INVALID", { ...good, argv: [] }],
  ];
  for (const [step, code, spec] of cases) {
    await assert.rejects(helper.launchProcess(spec, options), (error) => {
      assert.ok(isPlatformError(error), String(error));
      assert.equal(error.code, code, `${step}: ${error.message}`);
      assert.ok(String(error.details["step"]).includes(step), `${step} is ${String(error.details["step"])}`);
      return true;
    });
  }
  assert.deepEqual(findByMark(mark), []);
  assert.deepEqual(readdirSync(logs), []);
  await assertNoZombies(t);
});

test("a caller that gives up leaves no process", async () => {
  const mark = `fluxvm-gone-${process.pid}`;
  const controller = new AbortController();
  const launch = helper.launchProcess({ argv: ["/bin/sleep", "1000", mark] }, { signal: controller.signal });
  controller.abort(new Error("gave up"));
  await assert.rejects(launch, /gave up/);
  await helper.launchProcess(shell("true"), options).then((p) => p.exited);
  await waitFor("no process", () => findByMark(mark).length === 0);
});

test("whatever happens to a helper during launches, a cgroup's removal leaves no process", async (t) => {
  if (!requireRoot(t)) return;
  const mark = `fluxvm-chaos-${process.pid}`;
  const cgroups = await openVmCgroups({ instanceId: `chaos-${process.pid}`, helper });
  t.after(async () => {
    await cgroups.removeVmCgroup("vm", options);
    await cgroups.removeInstance(options);
  });
  let launched = 0;
  for (let round = 0; round < 40; round += 1) {
    const victim = await startHostHelper({ binaryPath: findNativeBinary("fluxvm-host-helper"), logger, clock: systemClock });
    const { dirs } = await cgroups.ensureVmCgroup("vm", {}, options);
    const launches = Array.from({ length: 4 }, () => victim.launchProcess({ argv: ["/bin/sleep", "1000", mark], cgroups: dirs }, options));
    await systemClock.sleep(round * 0.25);
    if (victim.pid !== undefined) process.kill(victim.pid, "SIGKILL");
    const ends = await Promise.allSettled(launches);
    for (const end of ends) {
      if (end.status === "rejected") assert.ok(isPlatformError(end.reason, "HOST_HELPER_UNAVAILABLE"), String(end.reason));
      else launched += 1;
    }
    await cgroups.removeVmCgroup("vm", options);
    for (const end of ends) if (end.status === "fulfilled") await end.value.exited;
    await victim.close();
  }
  t.diagnostic(`${launched} of 160 launches were answered`);
  await waitFor("no process", () => findByMark(mark).length === 0);
});

test("a request under way when the helper dies is made again where that is harmless", async () => {
  for (let round = 0; round < 5; round += 1) {
    const { pid } = helper;
    if (pid !== undefined) process.kill(pid, "SIGKILL");
    await helper.killCgroup("/sys/fs/cgroup/pids/fluxvm-none", options);
  }
});

test("two hundred launches at once, each with its own exit code", async () => {
  const codes = Array.from({ length: 200 }, (_, index) => index % 256);
  const started: { code: number; exited: Promise<unknown> }[] = [];
  for (let at = 0; at < codes.length; at += 40) {
    const batch = codes.slice(at, at + 40).map(async (code) => {
      const process_ = await helper.launchProcess(shell(`exit ${code}`), options);
      started.push({ code, exited: process_.exited });
    });
    await Promise.all(batch);
  }
  for (const { code, exited } of started) assert.deepEqual(await exited, { code });
});

test("a helper that is not there is told at once", async () => {
  await assert.rejects(startHostHelper({ binaryPath: "/nope/helper", logger, clock: systemClock }), (error) =>
    isPlatformError(error, "HOST_HELPER_UNAVAILABLE"),
  );
  assert.ok(
    lines.every((line) => line.level !== "error"),
    JSON.stringify(lines),
  );
});

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import { createMemoryLogger } from "@fluxvm/telemetry/testing";
import { systemClock } from "../clock/system-clock.ts";
import { startHostHelper } from "../helper/start-host-helper.ts";
import { findNativeBinary, requireRoot } from "../testing/gates.ts";
import { ensurePrivateDir, writeFileDurable } from "./durable.ts";
import { acquireStateLock } from "./state-lock.ts";

const binaryPath = findNativeBinary("fluxvm-host-helper");
const options = { signal: AbortSignal.timeout(60_000) };

function scratch(t: TestContext): string {
  const dir = mkdtempSync("/tmp/fluxvm-files-");
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

test("a durable write replaces the file and leaves no other", async (t) => {
  const dir = scratch(t);
  const path = join(dir, "a");
  await writeFileDurable(path, "one");
  await writeFileDurable(path, "two", { mode: 0o640 });
  assert.equal(readFileSync(path, "utf8"), "two");
  assert.equal(statSync(path).mode & 0o777, 0o640);
  await Promise.all(Array.from({ length: 20 }, (_, index) => writeFileDurable(path, String(index))));
  assert.deepEqual(readdirSync(dir), ["a"]);
  await assert.rejects(writeFileDurable(join(dir, "no/such/folder"), "x"), (error) => isPlatformError(error, "STATE_DIR_UNUSABLE"));
});

test("a full disk is told as such, and leaves no half of a file", async (t) => {
  if (!requireRoot(t)) return;
  const dir = scratch(t);
  const { runTool } = await import("../process/run-tool.ts");
  const tool = (command: string, ...args: string[]) => runTool({ command, args, timeoutMs: 5000, ...options });
  await tool("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", dir);
  try {
    await assert.rejects(writeFileDurable(join(dir, "a"), Buffer.alloc(1 << 20)), (error) => isPlatformError(error, "HOST_OUT_OF_SPACE"));
    assert.deepEqual(readdirSync(dir), []);
  } finally {
    await tool("umount", dir);
  }
});

test("a private folder gets owner and mode, again and again, and never through a link", async (t) => {
  if (!requireRoot(t)) return;
  const dir = scratch(t);
  const path = join(dir, "vm");
  for (let i = 0; i < 2; i += 1) await ensurePrivateDir(path, { uid: 64_100, gid: 64_100, mode: 0o700 });
  const { uid, gid, mode } = statSync(path);
  assert.deepEqual([uid, gid, mode & 0o7777], [64_100, 64_100, 0o700]);
  chmodSync(path, 0o777);
  await ensurePrivateDir(path, { uid: 64_100, gid: 64_100, mode: 0o700 });
  assert.equal(statSync(path).mode & 0o7777, 0o700);
  symlinkSync("/etc", join(dir, "link"));
  writeFileSync(join(dir, "file"), "");
  for (const name of ["link", "file"]) {
    await assert.rejects(ensurePrivateDir(join(dir, name), { uid: 64_100, gid: 64_100, mode: 0o700 }), (error) =>
      isPlatformError(error, "STATE_DIR_UNUSABLE"),
    );
  }
  assert.equal(statSync("/etc").uid, 0);
});

test("one holder per lock, let go by release", async (t) => {
  const path = join(scratch(t), "lock");
  const first = await acquireStateLock({ binaryPath, path });
  await assert.rejects(
    acquireStateLock({ binaryPath, path }),
    (error) => isPlatformError(error, "STATE_DIR_LOCKED") && error.message.includes(String(process.pid)),
  );
  first.release();
  first.release();
  const second = await acquireStateLock({ binaryPath, path });
  second.release();
  await assert.rejects(acquireStateLock({ binaryPath, path: join(path, "x") }), (error) => isPlatformError(error, "STATE_DIR_UNUSABLE"));
  await assert.rejects(acquireStateLock({ binaryPath: "/nope", path }), (error) => isPlatformError(error, "HOST_HELPER_UNAVAILABLE"));
});

test("a full disk, which cannot take the holder's pid, does not refuse the lock", async () => {
  const lock = await acquireStateLock({ binaryPath, path: "/dev/full" }); // opens, locks, and fails every write with ENOSPC
  lock.release();
});

/** A daemon in small: takes the lock, starts its helper with it, launches a process, says so and waits. */
const HOLDER = `
import { acquireStateLock } from ${JSON.stringify(import.meta.resolve("./state-lock.ts"))};
import { startHostHelper } from ${JSON.stringify(import.meta.resolve("../helper/start-host-helper.ts"))};
import { systemClock } from ${JSON.stringify(import.meta.resolve("../clock/system-clock.ts"))};
import { createLogger } from ${JSON.stringify(import.meta.resolve("@fluxvm/telemetry"))};
const [binaryPath, path] = process.argv.slice(-2);
const lock = await acquireStateLock({ binaryPath, path });
const helper = await startHostHelper({ binaryPath, lockFd: lock.fd, logger: createLogger({ level: "silent" }), clock: systemClock });
const vm = await helper.launchProcess({ argv: ["/bin/sleep", "1000"] }, { signal: AbortSignal.timeout(10000) });
console.log(JSON.stringify({ helper: helper.pid, vm: vm.identity }));
`;

test("a daemon killed outright frees the lock at once, its VM lives on and is adopted; its helper alone keeps the lock", async (t) => {
  const path = join(scratch(t), "lock");
  const daemon = spawn(process.execPath, ["--input-type=module", "-e", HOLDER, binaryPath, path], {
    stdio: ["ignore", "pipe", "inherit"],
    cwd: import.meta.dirname,
  });
  t.after(() => daemon.kill("SIGKILL"));
  const said = await new Promise<string>((resolve) => daemon.stdout.once("data", (chunk: Buffer) => resolve(chunk.toString())));
  const { helper: helperPid, vm } = JSON.parse(said) as { helper: number; vm: Parameters<typeof helper.adoptProcess>[0] };
  await assert.rejects(acquireStateLock({ binaryPath, path }), (error) => isPlatformError(error, "STATE_DIR_LOCKED"));

  // While the helper cannot notice the death, it still holds the lock.
  process.kill(helperPid, "SIGSTOP");
  daemon.kill("SIGKILL");
  await new Promise((resolve) => daemon.once("exit", resolve));
  await assert.rejects(acquireStateLock({ binaryPath, path }), (error) => isPlatformError(error, "STATE_DIR_LOCKED"));
  process.kill(helperPid, "SIGCONT");
  const endMs = systemClock.bootMs() + 5000;
  const take = async (): Promise<Awaited<ReturnType<typeof acquireStateLock>>> => {
    try {
      return await acquireStateLock({ binaryPath, path });
    } catch (error) {
      if (systemClock.bootMs() > endMs) throw error;
      await systemClock.sleep(5);
      return await take();
    }
  };
  const lock = await take();
  t.after(() => lock.release());

  const helper = await startHostHelper({ binaryPath, lockFd: lock.fd, logger: createMemoryLogger().logger, clock: systemClock });
  const adopted = await helper.adoptProcess(vm, options);
  assert.ok(adopted !== undefined, "the process outlived daemon and helper");
  await adopted.kill(options);
  await helper.close();
});

test("copies keep holes; what a file system cannot do is told", async (t) => {
  const dir = scratch(t);
  const helper = await startHostHelper({ binaryPath, logger: createMemoryLogger().logger, clock: systemClock });
  t.after(() => helper.close());
  const [source, target] = [join(dir, "a"), join(dir, "b")];
  writeFileSync(source, "data");
  const { truncate } = await import("node:fs/promises");
  await truncate(source, 100 << 20);
  assert.ok((await helper.sparseCopy({ source, target, mode: 0o600 }, options)) < 1 << 20);
  assert.equal(statSync(target).size, 100 << 20);
  assert.ok(statSync(target).blocks < 2048);
  await assert.rejects(helper.sparseCopy({ source, target, mode: 0o600 }, options), (error) => isPlatformError(error, "HOST_TOOL_FAILED"));
  await helper.setXattr(target, "user.fluxvm", Buffer.from([0, 1, 255]), options);
  assert.deepEqual(await helper.getXattr(target, "user.fluxvm", options), Buffer.from([0, 1, 255]));
  assert.equal(await helper.getXattr(target, "user.none", options), undefined);
  await assert.rejects(helper.reflink({ source: "/proc/self/status", target: join(dir, "c"), mode: 0o600 }, options), (error) =>
    isPlatformError(error, "HOST_CAPABILITY_MISSING"),
  );
  assert.deepEqual(readdirSync(dir).toSorted(), ["a", "b"]);
});

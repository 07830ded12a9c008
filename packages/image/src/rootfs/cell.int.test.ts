/** The cell that layers are unpacked in, seen from outside while it waits for its first byte. */
import assert from "node:assert/strict";
import { mkdir, readdir, readFile, readlink } from "node:fs/promises";
import { join } from "node:path";
import test from "node:test";
import { systemClock, spawnTool } from "@fluxvm/host";
import { requireRoot } from "@fluxvm/host/testing";
import { createImageWorld, hostTools } from "../testing/index.ts";

const DEADLINE_MS = 20_000;

/** Pid of the process that is number 1 of its pid namespace and whose command line names `work`. */
async function findWorker(work: string): Promise<string> {
  const deadline = systemClock.bootMs() + DEADLINE_MS;
  while (systemClock.bootMs() < deadline) {
    for (const pid of await readdir("/proc")) {
      if (!/^\d+$/.test(pid)) continue;
      const command = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
      const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "");
      if (command.includes(work) && /^NSpid:\s+\d+\s+1$/m.test(status) && /^Seccomp:\s+2$/m.test(status)) return pid;
    }
    await systemClock.sleep(20);
  }
  throw new Error("the worker did not appear");
}

test("the worker has nothing but its staging directory", async (t) => {
  if (!requireRoot(t)) return;
  const w = await createImageWorld(t);
  const work = join(w.directory, "cell-work");
  await mkdir(work);
  const specification = {
    work,
    disk: join(work, "disk"),
    mke2fs: "mke2fs",
    uuid: "00000000-0000-8000-8000-000000000000",
    hash_seed: "00000000-0000-8000-8000-000000000001",
    epoch: 1,
    min_bytes: 0,
    max_bytes: 1000,
    max_files: 10,
  };
  const tool = spawnTool({
    command: hostTools().hostHelper,
    args: ["unpack", JSON.stringify(specification)],
    timeoutMs: DEADLINE_MS,
    okCodes: [1],
    signal: w.signal,
  });
  const pid = await findWorker(work);
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  const field = (name: string): string => new RegExp(`^${name}:\\s+(.*)$`, "m").exec(status)?.[1] ?? "";
  assert.match(field("Uid"), /^1073741824(\s+1073741824){3}$/, "no account of the host's");
  assert.equal(field("NoNewPrivs"), "1");
  // chown, dac_override, fowner, fsetid, setfcap, within its own user namespace.
  assert.equal(Number.parseInt(field("CapEff"), 16), 0x8000_001b);
  assert.equal(Number.parseInt(field("CapBnd"), 16), 0x8000_001b);
  assert.equal((await readFile(`/proc/${pid}/uid_map`, "utf8")).trim().replaceAll(/\s+/g, " "), "0 1073741824 1073741824");
  for (const kind of ["user", "mnt", "net", "ipc", "uts", "pid"]) {
    assert.notEqual(await readlink(`/proc/${pid}/ns/${kind}`), await readlink(`/proc/self/ns/${kind}`), kind);
  }
  const mounts = (await readFile(`/proc/${pid}/mountinfo`, "utf8")).trim().split("\n");
  assert.equal(mounts.length, 1, mounts.join("\n"));
  assert.match(mounts[0] ?? "", /\/staging \/ \S*nosuid,nodev,noexec/);
  assert.deepEqual(await readdir(`/proc/${pid}/root`), []);
  tool.stdin.end();
  await tool.done;
  await assert.rejects(readFile(`/proc/${pid}/status`), { code: "ENOENT" });
});

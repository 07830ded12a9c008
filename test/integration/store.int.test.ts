/** The store on a real disk when things go wrong around it: its process is killed, its disk is full. */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import { openSqliteStore } from "@fluxvm/store";
import { createNullLogger } from "@fluxvm/telemetry";

const logger = createNullLogger();
const KILLS = 12;

/** Lets writers run until `after` acknowledgements, kills them and returns the last number each was told. */
async function writeAndKill(directory: string, after: number): Promise<Map<string, number>> {
  const child = spawn(process.execPath, [join(import.meta.dirname, "store-writer.ts"), directory], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  const acknowledged = new Map<string, number>();
  let count = 0;
  for await (const line of createInterface({ input: child.stdout })) {
    const [writer = "", number = ""] = line.split(" ");
    acknowledged.set(`w${writer}`, Number(number));
    count += 1;
    if (count === after) child.kill("SIGKILL");
  }
  await exited;
  return acknowledged;
}

test(`killed ${KILLS} times in the middle of commits, the store has every acknowledged one, whole`, async () => {
  for (let kill = 1; kill <= KILLS; kill += 1) {
    const directory = await mkdtemp(join(tmpdir(), "fluxvm-store-"));
    try {
      const acknowledged = await writeAndKill(directory, kill * 17);
      assert.ok(acknowledged.size > 0);
      const store = await openSqliteStore({ directory, logger });
      const vms = new Map((await store.load("vms")).map((r) => [r.key, r.value as number]));
      const leases = new Map((await store.load("leases")).map((r) => [r.key, r.value as number]));
      for (const [writer, number] of acknowledged) {
        const found = vms.get(writer) ?? 0;
        // More may be on disk than was told in time; what is there is whole.
        assert.ok(found >= number, `${writer}: ${found} on disk, ${number} acknowledged`);
        assert.equal(leases.get(writer), found, writer);
        assert.equal((await store.listEvents({ subject: writer, limit: 100_000 })).length, found, writer);
      }
      await store.close();
    } finally {
      await rm(directory, { recursive: true });
    }
  }
});

test("a full disk is HOST_OUT_OF_SPACE, loses nothing, and is over when there is room again", async (t) => {
  if (process.getuid?.() !== 0) {
    t.skip("needs root to mount a small file system");
    return;
  }
  const directory = await mkdtemp(join(tmpdir(), "fluxvm-store-"));
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=1m", "tmpfs", directory]);
  try {
    const store = await openSqliteStore({ directory, logger });
    const big = "x".repeat(60_000);
    let stored = 0;
    const fill = async (): Promise<void> => {
      for (; stored < 100; stored += 1) await store.commit([{ kind: "put", collection: "vms", key: `k${stored}`, value: big }]);
    };
    await assert.rejects(fill(), (error) => isPlatformError(error, "HOST_OUT_OF_SPACE"));
    assert.ok(stored > 0);
    assert.equal((await store.load("vms")).length, stored);
    execFileSync("mount", ["-o", "remount,size=8m", directory]);
    await store.commit([{ kind: "put", collection: "vms", key: "after", value: 1 }]);
    assert.equal((await store.load("vms")).length, stored + 1);
    await store.close();
  } finally {
    execFileSync("umount", [directory]);
    await rm(directory, { recursive: true });
  }
});

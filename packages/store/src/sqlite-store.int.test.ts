import assert from "node:assert/strict";
import { mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test, type TestContext } from "node:test";
import { isPlatformError, type ErrorCode } from "@fluxvm/core";
import { createNullLogger } from "@fluxvm/telemetry";
import { createMemoryLogger } from "@fluxvm/telemetry/testing";
import { MIGRATIONS } from "./migrations.ts";
import { Worker } from "node:worker_threads";
import { attachStore, openSqliteStore } from "./sqlite-store.ts";
import { runStoreConformance } from "./testing/index.ts";

const logger = createNullLogger();

runStoreConformance("sqlite", async (options) => {
  const directory = await mkdtemp(join(tmpdir(), "fluxvm-store-"));
  let store = await openSqliteStore({ directory, logger, ...options });
  const reopen = async (): Promise<typeof store> => {
    await store.close();
    store = await openSqliteStore({ directory, logger, ...options });
    return store;
  };
  const dispose = async (): Promise<void> => {
    await store.close();
    await rm(directory, { recursive: true });
  };
  return { store, reopen, dispose };
});

test("a database of a newer version is refused and left as it is", async (t) => {
  const directory = await makeDirectory(t);
  await (await openSqliteStore({ directory, logger })).close();
  const path = join(directory, "state.db");
  const db = new DatabaseSync(path);
  db.exec(`PRAGMA user_version = ${MIGRATIONS.length + 1}`);
  db.close();
  const before = await readFile(path);
  await rejectsWith(openSqliteStore({ directory, logger }), "STORE_TOO_NEW");
  assert.ok(before.equals(await readFile(path)));
});

test("a file that is no database, and a damaged one, are STORE_CORRUPT", async (t) => {
  const directory = await makeDirectory(t);
  const path = join(directory, "state.db");
  await writeFile(path, "not a database at all ".repeat(500));
  await rejectsWith(openSqliteStore({ directory, logger }), "STORE_CORRUPT");
  await rm(path);

  const store = await openSqliteStore({ directory, logger });
  for (let i = 0; i < 50; i += 1) await store.commit([{ kind: "put", collection: "vms", key: `k${i}`, value: "x".repeat(2000) }]);
  await store.close();
  const file = await open(path, "r+");
  await file.write(Buffer.alloc(12_288, 0x5a), 0, 12_288, 8192);
  await file.close();
  await rejectsWith(openSqliteStore({ directory, logger }), "STORE_CORRUPT");
});

test("a directory that cannot be made is STATE_DIR_UNUSABLE", async (t) => {
  const directory = await makeDirectory(t);
  await writeFile(join(directory, "file"), "");
  await rejectsWith(openSqliteStore({ directory: join(directory, "file", "state"), logger }), "STATE_DIR_UNUSABLE");
});

test("a second store on the same directory is turned away", async (t) => {
  const directory = await makeDirectory(t);
  const first = await openSqliteStore({ directory, logger });
  await rejectsWith(openSqliteStore({ directory, logger }), "STATE_DIR_LOCKED");
  await first.commit([{ kind: "put", collection: "vms", key: "a", value: 1 }]);
  await first.close();
});

test("one commit among many that fails takes none of the others along", async (t) => {
  const store = await openSqliteStore({ directory: await makeDirectory(t), logger });
  const results = await Promise.allSettled(
    Array.from(
      { length: 300 },
      async (_, i) =>
        await store.commit([{ kind: "put", collection: "vms", key: `k${i}`, value: i, expectedVersion: i % 3 === 0 ? 5 : 0 }]),
    ),
  );
  assert.equal(results.filter((r) => r.status === "rejected").length, 100);
  assert.equal((await store.load("vms")).length, 200);
  await store.close();
});

test("when the thread dies, what is pending and all that comes later is unavailable, and close still returns", async () => {
  for (const end of ["process.exit(3)", "throw new Error('bug')"]) {
    const { logger: memory, lines } = createMemoryLogger();
    const code = `const { parentPort } = require("node:worker_threads");
      parentPort.postMessage({ kind: "opened" });
      let count = 0;
      parentPort.on("message", () => { count += 1; if (count === 2) { ${end}; } });`;
    const store = await attachStore(new Worker(code, { eval: true }), memory);
    const calls = [
      store.commit([{ kind: "put", collection: "vms", key: "a", value: 1 }]),
      store.commit([{ kind: "put", collection: "vms", key: "b", value: 1 }]),
      store.load("vms"),
    ];
    for (const call of calls) await rejectsWith(call, "STORE_UNAVAILABLE");
    await rejectsWith(store.commit([{ kind: "put", collection: "vms", key: "c", value: 1 }]), "STORE_UNAVAILABLE");
    await rejectsWith(store.listEvents({ limit: 1 }), "STORE_UNAVAILABLE");
    assert.deepEqual(
      lines.map((line) => line.msg),
      ["store thread died"],
    );
    await store.close();
  }
});

test("the queue is bounded", async (t) => {
  const store = await openSqliteStore({ directory: await makeDirectory(t), logger });
  const commits = Array.from(
    { length: 9000 },
    async (_, i) => await store.commit([{ kind: "put", collection: "meta", key: `${i % 10}`, value: i }]),
  );
  const results = await Promise.allSettled(commits);
  const refused = results.filter((r) => r.status === "rejected");
  assert.ok(refused.length > 0 && refused.length < 9000, `${refused.length} refused`);
  for (const r of refused) assert.ok(isPlatformError(r.reason, "QUEUE_FULL"));
  await store.close();
});

async function makeDirectory(t: TestContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "fluxvm-store-"));
  t.after(async () => await rm(directory, { recursive: true }));
  return directory;
}

async function rejectsWith(promise: Promise<unknown>, code: ErrorCode): Promise<void> {
  await assert.rejects(promise, (error) => {
    assert.ok(isPlatformError(error, code), `${code} expected, got ${String(error)}`);
    return true;
  });
}

import assert from "node:assert/strict";
import { test } from "node:test";
import { PlatformError } from "@fluxvm/core";
import { createMemoryStore, runStoreConformance } from "./testing/index.ts";

runStoreConformance("memory", async (options) => {
  let store = createMemoryStore(options);
  const reopen = async (): Promise<typeof store> => {
    await store.close();
    store = createMemoryStore({ ...options, snapshot: store.snapshot() });
    return store;
  };
  return { store, reopen, dispose: async () => await store.close() };
});

const PUT = { kind: "put", collection: "vms", key: "a", value: 1 } as const;

test("a commit can fail before or after it is durable", async () => {
  const error = new PlatformError("HOST_OUT_OF_SPACE", "full");
  const store = createMemoryStore({ onCommit: (n) => ({ kind: "fail", error, applied: n === 2 }) });
  await assert.rejects(store.commit([PUT]), error);
  assert.deepEqual(store.snapshot().records, []);
  await assert.rejects(store.commit([PUT]), error);
  assert.equal(store.snapshot().records.length, 1);
});

test("a commit that hangs never settles, and its effect is as asked for", async () => {
  for (const applied of [true, false]) {
    const store = createMemoryStore({ onCommit: () => ({ kind: "hang", applied }) });
    const outcome = await Promise.race([store.commit([PUT]).then(() => "done"), new Promise((r) => setImmediate(r, "pending"))]);
    assert.equal(outcome, "pending");
    assert.equal(store.snapshot().records.length, applied ? 1 : 0);
  }
});

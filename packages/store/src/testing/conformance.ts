/** What every store must do: run by the SQLite store and by the one in memory. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import fc from "fast-check";
import type { Collection, Store, StoreChange } from "../store.ts";

export interface StoreUnderTest {
  readonly store: Store;
  /** Closes the store and opens what it left. */
  reopen(): Promise<Store>;
  dispose(): Promise<void>;
}

export type OpenStore = (options?: { readonly eventsKept?: number }) => Promise<StoreUnderTest>;

export function runStoreConformance(name: string, open: OpenStore): void {
  const withStore = (title: string, body: (t: StoreUnderTest) => Promise<void>, options?: { readonly eventsKept?: number }): void => {
    test(`${name}: ${title}`, async () => {
      const under = await open(options);
      try {
        await body(under);
      } finally {
        await under.dispose();
      }
    });
  };

  withStore("what is put is loaded, in key order, with its version", async ({ store }) => {
    await store.commit([put("b", { n: 2 }), put("a", { n: 1 })]);
    await store.commit([put("b", { n: 3 })]);
    assert.deepEqual(await store.load("vms"), [
      { key: "a", value: { n: 1 }, version: 1 },
      { key: "b", value: { n: 3 }, version: 2 },
    ]);
    assert.deepEqual(await store.load("images"), []);
  });

  withStore("it is there after reopening, events and their numbers too", async (under) => {
    await under.store.commit([put("a", "x"), event("vm.running", "a", { k: [1, null, "ä"] })]);
    const again = await under.reopen();
    await again.commit([event("vm.stopped", "a", {})]);
    assert.deepEqual(await again.load("vms"), [{ key: "a", value: "x", version: 1 }]);
    const events = await again.listEvents({ limit: 10 });
    assert.deepEqual(
      events.map((e) => [e.sequence, e.type, e.subject, e.wallMs, e.data]),
      [
        [1, "vm.running", "a", 1234, { k: [1, null, "ä"] }],
        [2, "vm.stopped", "a", 1234, {}],
      ],
    );
  });

  withStore("a wrong expected version rejects that commit alone and all of it", async ({ store }) => {
    await store.commit([put("a", 1)]);
    const results = await Promise.allSettled([
      store.commit([put("b", 1, 0)]),
      store.commit([put("c", 1), put("a", 2, 7)]),
      store.commit([put("a", 3, 1)]),
      store.commit([put("a", 4, 1)]),
      store.commit([put("d", 1)]),
    ]);
    assert.deepEqual(
      results.map((r) => r.status),
      ["fulfilled", "rejected", "fulfilled", "rejected", "fulfilled"],
    );
    for (const r of results) if (r.status === "rejected") assert.ok(isPlatformError(r.reason, "STORE_CONFLICT"));
    assert.deepEqual(
      (await store.load("vms")).map((r) => [r.key, r.value]),
      [
        ["a", 3],
        ["b", 1],
        ["d", 1],
      ],
    );
  });

  withStore("expected version 0 means it must not exist; deleting begins anew", async ({ store }) => {
    await store.commit([put("a", 1, 0)]);
    await assert.rejects(store.commit([put("a", 2, 0)]), (e) => isPlatformError(e, "STORE_CONFLICT"));
    await store.commit([{ kind: "delete", collection: "vms", key: "a" }]);
    await store.commit([{ kind: "delete", collection: "vms", key: "never-there" }]);
    await store.commit([put("a", 3, 0), put("a", 4, 1)]);
    assert.deepEqual(await store.load("vms"), [{ key: "a", value: 4, version: 2 }]);
  });

  withStore("changing a value after committing it changes nothing", async ({ store }) => {
    const value = { n: 1 };
    const done = store.commit([put("a", value)]);
    value.n = 2;
    await done;
    assert.deepEqual((await store.load("vms"))[0]?.value, { n: 1 });
  });

  withStore("a value that is no JSON is refused before anything is written", async ({ store }) => {
    await assert.rejects(store.commit([put("a", 1), put("b", undefined)]), /must be JSON/);
    assert.deepEqual(await store.load("vms"), []);
  });

  withStore("keys may hold anything", async ({ store }) => {
    const keys = ["", "'; DROP TABLE records; --", "ü/…", "a b", "\u{1F600}"];
    await store.commit(keys.map((key) => put(key, key)));
    assert.deepEqual(new Set((await store.load("vms")).map((r) => r.key)), new Set(keys));
  });

  withStore("events are listed by subject, after a number, up to a limit", async ({ store }) => {
    for (let i = 1; i <= 6; i += 1) await store.commit([event(`t${i}`, i % 2 === 0 ? "even" : "odd", i)]);
    const list = async (q: Parameters<Store["listEvents"]>[0]): Promise<unknown[]> => (await store.listEvents(q)).map((e) => e.data);
    assert.deepEqual(await list({ subject: "even", limit: 10 }), [2, 4, 6]);
    assert.deepEqual(await list({ subject: "even", afterSequence: 2, limit: 1 }), [4]);
    assert.deepEqual(await list({ afterSequence: 4, limit: 10 }), [5, 6]);
    assert.deepEqual(await list({ limit: 2 }), [1, 2]);
  });

  withStore(
    "only the newest events are kept",
    async ({ store }) => {
      for (let i = 1; i <= 25; i += 1) await store.commit([event("t", "s", i)]);
      assert.deepEqual(
        (await store.listEvents({ limit: 100 })).map((e) => e.data),
        [16, 17, 18, 19, 20, 21, 22, 23, 24, 25],
      );
    },
    { eventsKept: 10 },
  );

  withStore("a closed store refuses and closes again without fuss", async ({ store }) => {
    const pending = store.commit([put("a", 1)]);
    await store.close();
    await pending;
    await store.close();
    await assert.rejects(store.commit([put("a", 1)]), (e) => isPlatformError(e, "STORE_UNAVAILABLE"));
    await assert.rejects(store.load("vms"), (e) => isPlatformError(e, "STORE_UNAVAILABLE"));
  });

  withStore("any sequence of commits leaves what a plain map would hold", async (under) => {
    let { store } = under;
    const model = new Map<string, { value: unknown; version: number }>();
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(anyChange(), { minLength: 1, maxLength: 4 }), { maxLength: 12 }),
        fc.boolean(),
        async (commits, restart) => {
          const results = await Promise.allSettled(commits.map(async (changes) => await store.commit(changes)));
          for (const [i, changes] of commits.entries()) assert.equal(results[i]?.status === "fulfilled", applyToModel(model, changes));
          if (restart) store = await under.reopen();
          const found = (
            await Promise.all(
              COLLECTIONS.map(async (c) =>
                (await store.load(c)).map((r) => [`${c}/${r.key}`, { value: r.value, version: r.version }] as const),
              ),
            )
          ).flat();
          assert.deepEqual(new Map(found), model);
        },
      ),
      { numRuns: 60 },
    );
  });
}

const COLLECTIONS: readonly Collection[] = ["vms", "leases"];

function anyChange(): fc.Arbitrary<StoreChange & { readonly kind: "put" | "delete" }> {
  const key = fc.constantFrom("a", "b", "c");
  const collection = fc.constantFrom(...COLLECTIONS);
  const value = fc.jsonValue({ maxDepth: 1 }).map((v) => JSON.parse(JSON.stringify(v)) as unknown); // -0 becomes 0, as on disk
  return fc.oneof(
    fc.record({ kind: fc.constant("put" as const), collection, key, value, expectedVersion: fc.option(fc.nat(3), { nil: undefined }) }),
    fc.record({ kind: fc.constant("delete" as const), collection, key }),
  );
}

/** Whether the commit is taken; the model is changed if it is. */
function applyToModel(
  model: Map<string, { value: unknown; version: number }>,
  changes: readonly (StoreChange & { readonly kind: "put" | "delete" })[],
): boolean {
  const next = new Map(model);
  for (const change of changes) {
    const key = `${change.collection}/${change.key}`;
    const version = next.get(key)?.version ?? 0;
    if (change.kind === "delete") next.delete(key);
    else if (change.expectedVersion !== undefined && change.expectedVersion !== version) return false;
    else next.set(key, { value: change.value, version: version + 1 });
  }
  model.clear();
  for (const [key, value] of next) model.set(key, value);
  return true;
}

function put(key: string, value: unknown, expectedVersion?: number): StoreChange {
  return { kind: "put", collection: "vms", key, value, ...(expectedVersion === undefined ? {} : { expectedVersion }) };
}

function event(type: string, subject: string, data: unknown): StoreChange {
  return { kind: "event", type, subject, wallMs: 1234, data };
}

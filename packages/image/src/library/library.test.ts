import assert from "node:assert/strict";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type TestContext } from "node:test";
import { createSeededRandom, PlatformError } from "@fluxvm/core";
import { ManualClock, settle } from "@fluxvm/core/testing";
import { createMemoryStore, type MemoryStore, type MemoryStoreOptions } from "@fluxvm/store/testing";
import { createNullLogger } from "@fluxvm/telemetry";
import { ContentStore } from "./content-store.ts";
import { Library, type ImportContext, type ImportPlan, type ImportResult } from "./library.ts";
import { Slots } from "./slots.ts";

interface Content {
  readonly digest: string;
}

interface World {
  readonly library: Library<Content>;
  readonly files: ContentStore;
  readonly store: MemoryStore;
  readonly clock: ManualClock;
  readonly directory: string;
}

const DIGEST = `sha256:${"a".repeat(64)}`;
const OTHER = `sha256:${"b".repeat(64)}`;

async function openWorld(
  t: TestContext,
  options: { readonly directory?: string; readonly store?: MemoryStoreOptions; readonly slots?: number } = {},
): Promise<World> {
  const directory = options.directory ?? (await mkdtemp(join(tmpdir(), "fluxvm-library-")));
  const store = createMemoryStore(options.store);
  const clock = new ManualClock();
  const random = createSeededRandom(1);
  const files: ContentStore = new ContentStore({
    root: join(directory, "root"),
    tmp: join(directory, "tmp"),
    random,
    isReferenced: (digest) => library.isReferenced(digest),
  });
  const slots = new Slots({ count: options.slots ?? 2, maxWaiting: 2 });
  const library: Library<Content> = new Library({
    kind: "image",
    store,
    files,
    slots,
    clock,
    random,
    logger: createNullLogger(),
    importTimeoutMs: 60_000,
  });
  t.after(async () => {
    await library.close();
    await rm(directory, { recursive: true, force: true });
  });
  await library.load();
  await files.start();
  await library.checkFiles();
  return { library, files, store, clock, directory };
}

/** An import whose end the test decides. */
class Gate {
  readonly started = Promise.withResolvers<ImportContext>();
  readonly #end = Promise.withResolvers<string>();
  runs = 0;

  finish(digest: string): void {
    this.#end.resolve(digest);
  }

  fail(error: Error): void {
    this.#end.reject(error);
  }

  plan(w: World, overrides: Partial<ImportPlan<Content>> = {}): ImportPlan<Content> {
    const run = async (context: ImportContext): Promise<ImportResult<Content>> => {
      this.runs += 1;
      await writeFile(join(context.directory, "half-made"), "x");
      this.started.resolve(context);
      const aborted = new Promise<never>((_, reject) =>
        context.signal.addEventListener("abort", () => reject(context.signal.reason as Error)),
      ); // reasons are errors here
      const digest = await Promise.race([this.#end.promise, aborted]);
      const held = await w.files.ensure<Content>(digest, context.signal, async (directory) => {
        await writeFile(join(directory, "disk.raw"), digest);
        return { digest };
      });
      return { content: held.meta, release: held.release, name: "chosen" };
    };
    return { source: "s", name: "n", requestKey: "k", run, ...overrides };
  }
}

async function tree(w: World): Promise<string[]> {
  const names = await readdir(w.directory, { recursive: true });
  return names.filter((name) => name.includes("/")).toSorted();
}

const waiting = { signal: new AbortController().signal, timeoutMs: 30_000 };

test("an import is durable before its first file and ready after its last", async (t) => {
  const w = await openWorld(t);
  const gate = new Gate();
  const { record } = await w.library.create(gate.plan(w));
  assert.equal(record.state, "importing");
  const context = await gate.started.promise;
  assert.equal(w.store.snapshot().records.length, 1);
  context.report({ phase: "fetching", done_bytes: 5 });
  assert.equal(w.library.get("n").progress?.done_bytes, 5);
  assert.throws(() => w.library.requireReady("n"), { code: "IMAGE_NOT_READY" });
  gate.finish(DIGEST);
  const ended = await w.library.wait("n", waiting);
  assert.equal(ended.record.state, "ready");
  assert.equal(ended.progress, undefined);
  assert.deepEqual(await tree(w), [`root/${"a".repeat(64)}`, `root/${"a".repeat(64)}/disk.raw`, `root/${"a".repeat(64)}/meta.json`]);
  assert.equal(w.library.requireReady(DIGEST).id, record.id);
});

test("equal requests are one import, others get their own", async (t) => {
  const w = await openWorld(t);
  const gate = new Gate();
  const first = await w.library.create(gate.plan(w));
  const second = await w.library.create(gate.plan(w));
  const nameless = await w.library.create(gate.plan(w, { name: undefined }));
  assert.equal(second.record.id, first.record.id);
  assert.equal(nameless.record.id, first.record.id);
  const other = await w.library.create(gate.plan(w, { name: "m" }));
  assert.notEqual(other.record.id, first.record.id);
  await assert.rejects(w.library.create(gate.plan(w, { requestKey: "different" })), { code: "IMAGE_NAME_TAKEN" });
  gate.finish(DIGEST);
  await w.library.wait("n", waiting);
  await w.library.wait("m", waiting);
  assert.equal(gate.runs, 2);
  assert.equal((await readdir(join(w.directory, "root"))).length, 1);
});

test("files stay while any record refers to them", async (t) => {
  const w = await openWorld(t);
  const gate = new Gate();
  await w.library.create(gate.plan(w));
  await w.library.create(gate.plan(w, { name: "m" }));
  gate.finish(DIGEST);
  await w.library.wait("n", waiting);
  await w.library.wait("m", waiting);
  await w.library.delete("n", () => undefined);
  assert.equal((await readdir(join(w.directory, "root"))).length, 1);
  await w.library.delete("m", () => undefined);
  assert.deepEqual(await tree(w), []);
  assert.deepEqual(w.store.snapshot().records, []);
});

test("a failure is kept with its code, and makes way for the next try", async (t) => {
  const w = await openWorld(t);
  const gate = new Gate();
  const { record } = await w.library.create(gate.plan(w));
  await gate.started.promise;
  gate.fail(new PlatformError("IMAGE_TRUNCATED", "cut"));
  const ended = await w.library.wait("n", waiting);
  assert.deepEqual(ended.record.error, { code: "IMAGE_TRUNCATED", message: "cut" });
  assert.deepEqual(await tree(w), []);
  const next = new Gate();
  next.finish(DIGEST);
  const again = await w.library.create(next.plan(w));
  assert.notEqual(again.record.id, record.id);
  assert.equal((await w.library.wait("n", waiting)).record.state, "ready");
  assert.equal(w.library.list().length, 1);
  assert.equal(w.store.snapshot().records.length, 1);
});

test("deleting cancels, and returns when nothing is left", async (t) => {
  const w = await openWorld(t);
  const gate = new Gate();
  await w.library.create(gate.plan(w));
  const context = await gate.started.promise;
  const wait = assert.rejects(w.library.wait("n", waiting), { code: "IMAGE_NOT_FOUND" });
  await w.library.delete("n", () => undefined);
  assert.ok(context.signal.aborted);
  await wait;
  assert.deepEqual(await tree(w), []);
  assert.deepEqual(w.store.snapshot().records, []);
  assert.throws(() => w.library.get("n"), { code: "IMAGE_NOT_FOUND" });
});

test("whoever uses it keeps it", async (t) => {
  const w = await openWorld(t);
  const gate = new Gate();
  gate.finish(DIGEST);
  await w.library.create(gate.plan(w));
  await w.library.wait("n", waiting);
  const refuse = (): never => {
    throw new PlatformError("IMAGE_IN_USE", "used");
  };
  await assert.rejects(w.library.delete("n", refuse), { code: "IMAGE_IN_USE" });
  assert.equal(w.library.get("n").record.state, "ready");
});

test("an import has a deadline, and a wait has its own", async (t) => {
  const w = await openWorld(t);
  const gate = new Gate();
  await w.library.create(gate.plan(w));
  await gate.started.promise;
  const wait = assert.rejects(w.library.wait("n", { ...waiting, timeoutMs: 1000 }), { code: "WAIT_TIMEOUT" });
  await settle();
  await w.clock.advance(1000);
  await wait;
  assert.equal(w.library.get("n").record.state, "importing");
  const ended = w.library.wait("n", { ...waiting, timeoutMs: 600_000 });
  await w.clock.advance(60_000);
  assert.equal((await ended).record.error?.code, "DEADLINE_EXCEEDED");
  assert.deepEqual(await tree(w), []);
});

test("only so many run, only so many wait", async (t) => {
  const w = await openWorld(t, { slots: 1 });
  const gates = [new Gate(), new Gate(), new Gate(), new Gate()];
  for (const [index, gate] of gates.slice(0, 3).entries()) {
    await w.library.create(gate.plan(w, { name: `n${index}`, requestKey: `k${index}` }));
  }
  await gates[0]?.started.promise;
  await settle();
  assert.deepEqual(
    gates.map((gate) => gate.runs),
    [1, 0, 0, 0],
  );
  await assert.rejects(w.library.create(new Gate().plan(w, { name: "n3", requestKey: "k3" })), { code: "QUEUE_FULL" });
  await w.library.delete("n1", () => undefined);
  for (const gate of gates) gate.finish(DIGEST);
  await w.library.wait("n2", waiting);
  assert.deepEqual(
    gates.map((gate) => gate.runs),
    [1, 0, 1, 0],
  );
});

test("a name is found by the import where none was given", async (t) => {
  const w = await openWorld(t);
  for (const [index, digest] of [DIGEST, OTHER].entries()) {
    const gate = new Gate();
    gate.finish(digest);
    const { record } = await w.library.create(gate.plan(w, { name: undefined, source: `s${index}`, requestKey: `k${index}` }));
    assert.equal(record.name, `s${index}`);
    await w.library.wait(record.id, waiting);
  }
  assert.deepEqual(
    w.library.list().map(({ record }) => record.name),
    ["chosen", "chosen-bbbbbbbb"],
  );
});

test("what a crash leaves is swept, and what was under way has failed", async (t) => {
  const w = await openWorld(t);
  const done = new Gate();
  done.finish(DIGEST);
  await w.library.create(done.plan(w));
  await w.library.wait("n", waiting);
  const gate = new Gate();
  await w.library.create(gate.plan(w, { name: "m", requestKey: "k2" }));
  await gate.started.promise;
  const held = await w.files.ensure(OTHER, waiting.signal, async () => ({ digest: OTHER }));
  assert.equal((await readdir(join(w.directory, "root"))).length, 2);
  assert.ok((await readdir(join(w.directory, "tmp"))).length > 0);

  const after = await openWorld(t, { directory: w.directory, store: { snapshot: w.store.snapshot() } });
  assert.equal(after.library.get("n").record.state, "ready");
  assert.equal(after.library.get("m").record.error?.code, "REQUEST_CANCELLED");
  assert.deepEqual(await readdir(join(w.directory, "root")), ["a".repeat(64)]);
  assert.deepEqual(await readdir(join(w.directory, "tmp")), []);
  gate.finish(DIGEST);
  await held.release();
});

test("a ready record whose files are gone says so", async (t) => {
  const w = await openWorld(t);
  const gate = new Gate();
  gate.finish(DIGEST);
  await w.library.create(gate.plan(w));
  await w.library.wait("n", waiting);
  await rm(join(w.directory, "root", "a".repeat(64), "meta.json"));
  const after = await openWorld(t, { directory: w.directory, store: { snapshot: w.store.snapshot() } });
  assert.equal(after.library.get("n").record.state, "failed");
  assert.deepEqual(await tree(after), []);
});

test("an intent that cannot be stored starts nothing", async (t) => {
  const error = new PlatformError("STORE_UNAVAILABLE", "no");
  const w = await openWorld(t, { store: { onCommit: () => ({ kind: "fail", error }) } });
  const gate = new Gate();
  await assert.rejects(w.library.create(gate.plan(w)), { code: "STORE_UNAVAILABLE" });
  await settle();
  assert.equal(gate.runs, 0);
  assert.deepEqual(w.library.list(), []);
});

test("an end that cannot be stored is a failure, without files", async (t) => {
  const error = new PlatformError("STORE_UNAVAILABLE", "no");
  const w = await openWorld(t, { store: { onCommit: (number) => (number === 2 ? { kind: "fail", error } : { kind: "apply" }) } });
  const gate = new Gate();
  gate.finish(DIGEST);
  await w.library.create(gate.plan(w));
  assert.equal((await w.library.wait("n", waiting)).record.error?.code, "STORE_UNAVAILABLE");
  assert.deepEqual(await tree(w), []);
});

test("records that cannot be read do not stop the start", async (t) => {
  const store = createMemoryStore();
  for (const [key, value] of [
    ["a", null],
    ["b", { id: "b" }],
    ["c", { id: "c", name: "c", source: "s", requestKey: "k", state: "ready", createdAtMs: 1 }],
  ] as const) {
    await store.commit([{ kind: "put", collection: "images", key, value }]);
  }
  const w = await openWorld(t, { store: { snapshot: store.snapshot() } });
  assert.deepEqual(w.library.list(), []);
});

test("closing ends everything under way", async (t) => {
  const w = await openWorld(t);
  const gate = new Gate();
  await w.library.create(gate.plan(w));
  await gate.started.promise;
  await w.library.close();
  assert.equal(w.library.get("n").record.error?.code, "REQUEST_CANCELLED");
  assert.deepEqual(await tree(w), []);
  await assert.rejects(w.library.create(gate.plan(w, { name: "m" })), { code: "REQUEST_CANCELLED" });
});

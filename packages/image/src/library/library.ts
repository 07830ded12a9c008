/**
 * The records of one kind of object (images or kernels) and the imports that make them.
 *
 *   create ──> importing ──> ready
 *                  │  └────> failed          delete, from any state ──> gone
 *                  └ daemon ends: failed at the next start
 *
 * Invariants: a record in state importing is durable before the first file; files are there before the record says
 * ready; a name belongs to one record that has not failed; the record is out of memory before its files go.
 * Called by the image and the kernel service. It knows nothing of formats.
 */
import { abortable, newId, PlatformError, type Clock, type ErrorCode, type Random, toPlatformError, withDeadline } from "@fluxvm/core";
import type { Progress } from "@fluxvm/contracts";
import type { Store, StoreChange } from "@fluxvm/store";
import type { Logger } from "@fluxvm/telemetry";
import { rm } from "node:fs/promises";
import { translateHostError } from "../host-error.ts";
import type { ContentStore } from "./content-store.ts";
import { parseRecord, type ObjectRecord } from "./record.ts";
import type { Slots } from "./slots.ts";

export interface ImportContext {
  readonly signal: AbortSignal;
  /** A directory for this import alone, removed when it ends. */
  readonly directory: string;
  report(progress: Progress): void;
  readonly logger: Logger;
}

export interface ImportResult<Content> {
  readonly content: Content;
  /** Keeps the files until the record refers to them. */
  readonly release: () => Promise<void>;
  /** The name to take when the request gave none. */
  readonly name?: string;
}

export interface ImportPlan<Content> {
  readonly source: string;
  /** Name asked for; default: the source until the import says better. */
  readonly name: string | undefined;
  readonly requestKey: string;
  readonly run: (context: ImportContext) => Promise<ImportResult<Content>>;
}

export interface LibraryOptions {
  readonly kind: "image" | "kernel";
  readonly store: Store;
  readonly files: ContentStore;
  readonly slots: Slots;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly importTimeoutMs: number;
}

interface Entry<Content> {
  record: ObjectRecord<Content>;
  progress: Progress | undefined;
  readonly cancel: AbortController;
  /** Resolves when the import ended; never rejects. */
  ended: Promise<void>;
}

export interface Found<Content> {
  readonly record: ObjectRecord<Content>;
  readonly progress: Progress | undefined;
}

const MAX_OBJECTS = 100_000;
const CODES = {
  image: { notFound: "IMAGE_NOT_FOUND", notReady: "IMAGE_NOT_READY", nameTaken: "IMAGE_NAME_TAKEN" },
  kernel: { notFound: "KERNEL_NOT_FOUND", notReady: "KERNEL_NOT_READY", nameTaken: "KERNEL_NAME_TAKEN" },
} as const satisfies Record<string, Record<string, ErrorCode>>;

export class Library<Content extends { readonly digest: string }> {
  readonly #options: LibraryOptions;
  readonly #entries = new Map<string, Entry<Content>>();
  #closed = false;

  constructor(options: LibraryOptions) {
    this.#options = options;
  }

  /** Loads records; an import that was under way when the daemon ended becomes failed. */
  async load(): Promise<void> {
    const changes: StoreChange[] = [];
    for (const { key, value } of await this.#options.store.load(this.#collection)) {
      const record = parseRecord<Content>(value);
      if (record === undefined) {
        this.#options.logger.warn({ collection: this.#collection, key }, "record cannot be read, skipped");
        continue;
      }
      const settled = record.state === "importing" ? asFailed(record, interrupted()) : record;
      if (settled !== record) changes.push(this.#put(settled));
      this.#entries.set(record.id, { record: settled, progress: undefined, cancel: new AbortController(), ended: Promise.resolve() });
    }
    if (changes.length > 0) await this.#options.store.commit(changes);
  }

  /** Fails the ready records whose files are gone. To be called when `files` has started. */
  async checkFiles(): Promise<void> {
    const changes: StoreChange[] = [];
    for (const entry of this.#entries.values()) {
      const { content } = entry.record;
      if (content === undefined || (await this.#options.files.has(content.digest))) continue;
      entry.record = asFailed(
        entry.record,
        new PlatformError("IMAGE_MALFORMED", "The files are gone from the state directory: import again"),
      );
      changes.push(this.#put(entry.record));
    }
    if (changes.length > 0) await this.#options.store.commit(changes);
  }

  list(): Found<Content>[] {
    return [...this.#entries.values()]
      .map(({ record, progress }) => ({ record, progress }))
      .toSorted((a, b) => a.record.createdAtMs - b.record.createdAtMs);
  }

  isReferenced(digest: string): boolean {
    for (const { record } of this.#entries.values()) if (record.content?.digest === digest) return true;
    return false;
  }

  /** By id, then name, then digest. */
  get(reference: string): Found<Content> {
    const { record, progress } = this.#require(reference);
    return { record, progress };
  }

  requireReady(reference: string): ObjectRecord<Content> & { readonly content: Content } {
    const { record } = this.#require(reference);
    if (record.content !== undefined) return { ...record, content: record.content };
    const why = record.state === "failed" ? `its import failed: ${record.error?.message ?? "unknown"}` : "it is still being imported";
    throw new PlatformError(CODES[this.#options.kind].notReady, `Cannot use ${this.#options.kind} ${JSON.stringify(record.name)}: ${why}`);
  }

  /** The record of a new import, durable; an equal one that is under way or ready is returned instead. */
  async create(plan: ImportPlan<Content>): Promise<Found<Content>> {
    if (this.#closed) throw new PlatformError("REQUEST_CANCELLED", "The daemon is stopping");
    const name = plan.name ?? plan.source;
    const existing = this.#findEqual(plan, name);
    if (existing !== undefined) return { record: existing.record, progress: existing.progress };
    this.#requireRoom(name);
    const record: ObjectRecord<Content> = {
      id: newId(this.#options.kind === "image" ? "img" : "krn", this.#options.random),
      name,
      source: plan.source,
      requestKey: plan.requestKey,
      state: "importing",
      createdAtMs: this.#options.clock.wallMs(),
    };
    const replaced = [...this.#entries.values()].filter((e) => e.record.name === name);
    for (const { record: old } of replaced) this.#entries.delete(old.id);
    const entry: Entry<Content> = { record, progress: undefined, cancel: new AbortController(), ended: Promise.resolve() };
    this.#entries.set(record.id, entry);
    const stored = this.#options.store.commit([...replaced.map((e) => this.#remove(e.record.id)), this.#put(record)]);
    entry.ended = stored.then(async () => await this.#import(entry, plan)).catch(() => undefined);
    try {
      await stored;
    } catch (error) {
      this.#entries.delete(record.id);
      for (const old of replaced) this.#entries.set(old.record.id, old);
      throw error;
    }
    return { record: entry.record, progress: entry.progress };
  }

  /** Resolves when the import ended. @throws `WAIT_TIMEOUT`, not found when it was deleted meanwhile. */
  async wait(reference: string, options: { readonly signal: AbortSignal; readonly timeoutMs: number }): Promise<Found<Content>> {
    const entry = this.#require(reference);
    const what = `waiting for the import of ${this.#options.kind} ${JSON.stringify(entry.record.name)}`;
    const { clock } = this.#options;
    await withDeadline({ clock, timeoutMs: options.timeoutMs, signal: options.signal, code: "WAIT_TIMEOUT", what }, async (signal) => {
      await abortable(entry.ended, signal);
    });
    return this.get(entry.record.id);
  }

  /** Ends an import under way and removes record and files. `mayDelete` throws when somebody uses it. */
  async delete(reference: string, mayDelete: (record: ObjectRecord<Content>) => void): Promise<ObjectRecord<Content>> {
    const entry = this.#require(reference);
    mayDelete(entry.record);
    this.#entries.delete(entry.record.id);
    entry.cancel.abort(new PlatformError("REQUEST_CANCELLED", `The ${this.#options.kind} was deleted during its import`));
    await entry.ended;
    await this.#options.store.commit([this.#remove(entry.record.id)]);
    if (entry.record.content !== undefined) await this.#options.files.collect(entry.record.content.digest);
    return entry.record;
  }

  /** Cancels what is under way and waits for its end. */
  async close(): Promise<void> {
    this.#closed = true;
    const ending = [...this.#entries.values()];
    for (const entry of ending) entry.cancel.abort(interrupted());
    await Promise.all(ending.map(async (entry) => await entry.ended));
  }

  async #import(entry: Entry<Content>, plan: ImportPlan<Content>): Promise<void> {
    const { clock, logger, slots, importTimeoutMs, kind } = this.#options;
    const startMs = clock.bootMs();
    let outcome: ObjectRecord<Content>;
    let release: (() => Promise<void>) | undefined;
    try {
      const what = `importing ${kind} ${JSON.stringify(entry.record.name)}`;
      const result = await slots.run(entry.cancel.signal, async () => {
        let running: Promise<ImportResult<Content>> | undefined;
        try {
          return await withDeadline({ clock, timeoutMs: importTimeoutMs, signal: entry.cancel.signal, what }, async (signal) => {
            running = this.#runPlan(entry, plan, signal);
            return await running;
          });
        } finally {
          // Cancelled work still cleans up after itself: its end is the import's end.
          await running?.catch(() => undefined);
        }
      });
      release = result.release;
      entry.cancel.signal.throwIfAborted();
      outcome = { ...entry.record, name: this.#chooseName(entry, plan, result), state: "ready", content: result.content };
    } catch (error) {
      const failure = translateHostError(error);
      outcome = asFailed(entry.record, failure);
      const fields = { err: failure, [`${kind}Id`]: entry.record.id, durationMs: clock.bootMs() - startMs };
      if (failure.code === "REQUEST_CANCELLED") logger.info(fields, "import cancelled");
      else logger.warn(fields, "import failed");
    }
    await this.#settle(entry, outcome);
    await release?.().catch((error: unknown) => logger.warn({ err: error }, "files of an import were not released"));
    if (outcome.state === "ready") logger.info({ [`${kind}Id`]: outcome.id, durationMs: clock.bootMs() - startMs }, "import finished");
  }

  async #runPlan(entry: Entry<Content>, plan: ImportPlan<Content>, signal: AbortSignal): Promise<ImportResult<Content>> {
    const directory = await this.#options.files.makeTemporary(entry.record.id);
    try {
      const report = (progress: Progress): void => {
        entry.progress = progress;
      };
      return await plan.run({
        signal,
        directory,
        report,
        logger: this.#options.logger.child({ [`${this.#options.kind}Id`]: entry.record.id }),
      });
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  }

  /** A deleted record is not written again: its deleter waits for this and removes it. */
  async #settle(entry: Entry<Content>, outcome: ObjectRecord<Content>): Promise<void> {
    const deleted = this.#entries.get(entry.record.id) !== entry;
    entry.progress = undefined;
    if (deleted) return;
    try {
      await this.#options.store.commit([this.#put(outcome)]);
      entry.record = outcome;
    } catch (error) {
      entry.record = asFailed(entry.record, toPlatformError(error));
      this.#options.logger.error({ err: error, id: outcome.id }, "end of an import could not be stored");
    }
  }

  #chooseName(entry: Entry<Content>, plan: ImportPlan<Content>, result: ImportResult<Content>): string {
    if (plan.name !== undefined || result.name === undefined) return entry.record.name;
    const taken = (name: string): boolean => [...this.#entries.values()].some((e) => e !== entry && e.record.name === name);
    if (!taken(result.name)) return result.name;
    const suffix = result.content.digest.slice("sha256:".length);
    const short = `${result.name}-${suffix.slice(0, 8)}`;
    return taken(short) ? `${result.name}-${suffix}` : short;
  }

  /**
   * The record that answers an equal request: same inputs, and the name asked for if one was given. A failed one does
   * not count: it is replaced.
   */
  #findEqual(plan: ImportPlan<Content>, name: string): Entry<Content> | undefined {
    for (const entry of this.#entries.values()) {
      const { record } = entry;
      const sameName = plan.name === undefined || record.name === name;
      if (record.requestKey === plan.requestKey && record.state !== "failed" && sameName) return entry;
    }
    return undefined;
  }

  #requireRoom(name: string): void {
    const { kind, slots } = this.#options;
    for (const { record } of this.#entries.values()) {
      if (record.name !== name || record.state === "failed") continue;
      throw new PlatformError(
        CODES[kind].nameTaken,
        `Cannot create ${kind} ${JSON.stringify(name)}: another ${kind} has this name (${record.id})`,
      );
    }
    if (this.#entries.size >= MAX_OBJECTS || !slots.hasRoom()) {
      throw new PlatformError("QUEUE_FULL", `Cannot create ${kind} ${JSON.stringify(name)}: too many imports wait`, {
        retryAfterMs: 10_000,
      });
    }
  }

  #require(reference: string): Entry<Content> {
    const direct = this.#entries.get(reference);
    if (direct !== undefined) return direct;
    const all = [...this.#entries.values()];
    const found = all.find((e) => e.record.name === reference) ?? all.find((e) => e.record.content?.digest === reference);
    if (found !== undefined) return found;
    throw new PlatformError(
      CODES[this.#options.kind].notFound,
      `There is no ${this.#options.kind} ${JSON.stringify(reference.slice(0, 200))}`,
    );
  }

  get #collection(): "images" | "kernels" {
    return this.#options.kind === "image" ? "images" : "kernels";
  }

  #put(record: ObjectRecord<Content>): StoreChange {
    return { kind: "put", collection: this.#collection, key: record.id, value: record };
  }

  #remove(id: string): StoreChange {
    return { kind: "delete", collection: this.#collection, key: id };
  }
}

function asFailed<Content>(record: ObjectRecord<Content>, error: PlatformError): ObjectRecord<Content> {
  const { content: _content, ...rest } = record;
  return { ...rest, state: "failed", error: { code: error.code, message: error.message } };
}

function interrupted(): PlatformError {
  return new PlatformError("REQUEST_CANCELLED", "The daemon ended during the import: import again");
}

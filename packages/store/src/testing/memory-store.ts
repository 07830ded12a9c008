/**
 * A store in memory with the same promises as the real one, for tests and simulation: what `snapshot()` returns is
 * what a crash would leave, and `onCommit` decides each commit's fate.
 */
import { PlatformError } from "@fluxvm/core";
import type { Store, StoreChange, StoredEvent, StoredRecord } from "../store.ts";
import { toWireChange, type WireChange } from "../worker-protocol.ts";

/**
 * `apply`; `fail` with an error before (or, `applied`, after) it is durable; `hang`: never settles, as when the process
 * dies while waiting, with or without the commit having reached the disk.
 */
export type CommitFate =
  | { readonly kind: "apply" }
  | { readonly kind: "fail"; readonly error: PlatformError; readonly applied?: boolean }
  | { readonly kind: "hang"; readonly applied: boolean }
  /** A slow disk: applied once `until` resolves. */
  | { readonly kind: "delay"; readonly until: Promise<void> };

export interface StoreSnapshot {
  readonly records: readonly { readonly collection: string; readonly record: StoredRecord }[];
  readonly events: readonly StoredEvent[];
  readonly lastSequence: number;
}

export interface MemoryStoreOptions {
  readonly snapshot?: StoreSnapshot;
  readonly eventsKept?: number;
  /** `number` counts commits from 1. Default: apply all. */
  readonly onCommit?: (number: number, changes: readonly StoreChange[]) => CommitFate;
}

export interface MemoryStore extends Store {
  /** What is durable at this moment. */
  snapshot(): StoreSnapshot;
  readonly commits: number;
}

export function createMemoryStore(options: MemoryStoreOptions = {}): MemoryStore {
  return new InMemoryStore(options);
}

class InMemoryStore implements MemoryStore {
  readonly #options: MemoryStoreOptions;
  readonly #records = new Map<
    string,
    { readonly collection: string; readonly key: string; readonly json: string; readonly version: number }
  >();
  #events: {
    readonly sequence: number;
    readonly type: string;
    readonly subject: string;
    readonly wallMs: number;
    readonly json: string;
  }[] = [];
  #lastSequence = 0;
  #commits = 0;
  #closed = false;

  constructor(options: MemoryStoreOptions) {
    this.#options = options;
    for (const { collection, record } of options.snapshot?.records ?? []) {
      this.#records.set(toKey(collection, record.key), {
        collection,
        key: record.key,
        json: JSON.stringify(record.value),
        version: record.version,
      });
    }
    this.#events = (options.snapshot?.events ?? []).map(({ data, ...rest }) => ({ ...rest, json: JSON.stringify(data) }));
    this.#lastSequence = options.snapshot?.lastSequence ?? 0;
  }

  get commits(): number {
    return this.#commits;
  }

  async load(collection: string): Promise<readonly StoredRecord[]> {
    this.#requireOpen();
    await Promise.resolve();
    return this.#list(collection);
  }

  async listEvents(query: {
    readonly subject?: string;
    readonly afterSequence?: number;
    readonly limit: number;
  }): Promise<readonly StoredEvent[]> {
    this.#requireOpen();
    await Promise.resolve();
    const after = query.afterSequence ?? 0;
    const wanted = this.#events.filter((e) => e.sequence > after && (query.subject === undefined || e.subject === query.subject));
    return wanted.slice(0, query.limit).map(toEvent);
  }

  async commit(changes: readonly StoreChange[]): Promise<void> {
    const frozen = changes.map(toWireChange);
    this.#requireOpen();
    if (changes.length === 0) return;
    await Promise.resolve(); // no caller may count on it being done at once
    await this.#commitOne(frozen, changes);
  }

  async close(): Promise<void> {
    await Promise.resolve();
    this.#closed = true;
  }

  snapshot(): StoreSnapshot {
    const collections = new Set([...this.#records.values()].map((r) => r.collection));
    const records = [...collections].flatMap((collection) => this.#list(collection).map((record) => ({ collection, record })));
    return { records, events: this.#events.map(toEvent), lastSequence: this.#lastSequence };
  }

  async #commitOne(frozen: readonly WireChange[], changes: readonly StoreChange[]): Promise<void> {
    this.#commits += 1;
    const fate = this.#options.onCommit?.(this.#commits, changes) ?? { kind: "apply" };
    switch (fate.kind) {
      case "apply":
        this.#apply(frozen);
        return;
      case "fail":
        if (fate.applied === true) this.#apply(frozen);
        throw fate.error;
      case "delay":
        await fate.until;
        this.#apply(frozen);
        return;
      case "hang":
        if (fate.applied) this.#apply(frozen);
        await new Promise<never>(() => undefined); // never: the process is gone
    }
  }

  #apply(changes: readonly WireChange[]): void {
    for (const change of changes) if (change.kind === "put") this.#requireVersion(change, changes);
    for (const change of changes) this.#applyOne(change);
    const kept = this.#options.eventsKept ?? 100_000;
    if (this.#events.length > kept) this.#events = this.#events.slice(-kept);
  }

  #applyOne(change: WireChange): void {
    switch (change.kind) {
      case "put": {
        const key = toKey(change.collection, change.key);
        this.#records.set(key, {
          collection: change.collection,
          key: change.key,
          json: change.json,
          version: (this.#records.get(key)?.version ?? 0) + 1,
        });
        break;
      }
      case "delete":
        this.#records.delete(toKey(change.collection, change.key));
        break;
      case "event":
        this.#lastSequence += 1;
        this.#events.push({
          sequence: this.#lastSequence,
          type: change.type,
          subject: change.subject,
          wallMs: Math.round(change.wallMs),
          json: change.json,
        });
        break;
    }
  }

  /** Versions are checked as the change before it in the same commit left them. */
  #requireVersion(change: WireChange & { readonly kind: "put" }, all: readonly WireChange[]): void {
    if (change.expectedVersion === undefined) return;
    let found = this.#records.get(toKey(change.collection, change.key))?.version ?? 0;
    for (const earlier of all.slice(0, all.indexOf(change))) {
      if (earlier.kind === "event" || earlier.collection !== change.collection || earlier.key !== change.key) continue;
      found = earlier.kind === "put" ? found + 1 : 0;
    }
    if (found === change.expectedVersion) return;
    throw new PlatformError(
      "STORE_CONFLICT",
      `Record ${change.collection}/${change.key} changed in between: version ${found}, expected ${change.expectedVersion}`,
    );
  }

  #list(collection: string): StoredRecord[] {
    const rows = [...this.#records.values()].filter((r) => r.collection === collection);
    rows.sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)));
    return rows.map((r) => ({ key: r.key, value: JSON.parse(r.json) as unknown, version: r.version }));
  }

  #requireOpen(): void {
    if (this.#closed) throw new PlatformError("STORE_UNAVAILABLE", "The state database is closed");
  }
}

function toKey(collection: string, key: string): string {
  return `${collection}\u0000${key}`;
}

function toEvent(row: {
  readonly sequence: number;
  readonly type: string;
  readonly subject: string;
  readonly wallMs: number;
  readonly json: string;
}): StoredEvent {
  const { json, ...rest } = row;
  return { ...rest, data: JSON.parse(json) as unknown };
}

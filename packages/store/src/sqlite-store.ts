/**
 * The store on disk: SQLite in a worker thread, so that no sync of a disk stalls the event loop.
 *
 *   commit() -> [queue, bounded] -> one group in flight -> worker: one transaction, one sync -> every caller answered
 *                    ^ everything that arrives meanwhile is the next group
 *
 * Invariants: groups are written in the order of their commits. A commit resolves only once it is on disk. When the
 * worker dies, whatever is pending and all that comes later is `STORE_UNAVAILABLE`: the daemon must start again, and
 * what was pending may or may not be on disk. Reads see every commit acknowledged before them.
 *
 * Does not lock the state directory (the daemon does), and holds no cache.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { assert, isErrorCode, PlatformError } from "@fluxvm/core";
import type { Logger } from "@fluxvm/telemetry";
import { EVENTS_KEPT } from "./migrations.ts";
import type { Store, StoreChange, StoredEvent, StoredRecord } from "./store.ts";
import {
  toWireChange,
  type WireChange,
  type WireError,
  type WorkerReply,
  type WorkerRequest,
  type WorkerSettings,
} from "./worker-protocol.ts";

/** Commits that may wait; the next one is told `QUEUE_FULL`. */
const MAX_QUEUED = 8192;
/** Commits of one transaction at most, so that the first of them does not wait for too many others. */
const MAX_GROUP = 512;

export interface SqliteStoreOptions {
  /** An existing or new directory; the database is `state.db` in it. */
  readonly directory: string;
  readonly logger: Logger;
  /** Default 100,000. */
  readonly eventsKept?: number;
}

/** @throws PlatformError `STORE_CORRUPT`, `STORE_TOO_NEW`, `STATE_DIR_LOCKED`, `STATE_DIR_UNUSABLE`, `HOST_OUT_OF_SPACE`. */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<Store> {
  try {
    mkdirSync(options.directory, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new PlatformError("STATE_DIR_UNUSABLE", `Cannot make the state directory ${options.directory}`, { cause: error });
  }
  const settings: WorkerSettings = { path: join(options.directory, "state.db"), eventsKept: options.eventsKept ?? EVENTS_KEPT };
  const worker = new Worker(new URL("./store-worker.ts", import.meta.url), { workerData: settings, name: "store" });
  return await attachStore(worker, options.logger);
}

/** The store over a thread that speaks the worker's protocol. */
export async function attachStore(worker: Worker, logger: Logger): Promise<Store> {
  const store = new SqliteStore(worker, logger);
  await store.opened;
  return store;
}

interface QueuedCommit {
  readonly changes: readonly WireChange[];
  resolve(): void;
  reject(error: PlatformError): void;
}

interface PendingRequest {
  settle(reply: WorkerReply): void;
  reject(error: PlatformError): void;
}

class SqliteStore implements Store {
  readonly opened: Promise<void>;
  readonly #worker: Worker;
  readonly #logger: Logger;
  readonly #queue: QueuedCommit[] = [];
  readonly #pending = new Map<number, PendingRequest>();
  #nextId = 1;
  #groupInFlight = false;
  #dead: PlatformError | undefined;
  #closing: Promise<void> | undefined;
  #idle: (() => void) | undefined;

  constructor(worker: Worker, logger: Logger) {
    this.#worker = worker;
    this.#logger = logger;
    this.opened = new Promise((resolve, reject) => {
      this.#pending.set(0, { settle: () => resolve(), reject });
    });
    worker.on("message", (reply: WorkerReply) => this.#onReply(reply));
    worker.on("error", (error: unknown) => this.#onDeath(error));
    worker.on("exit", () => this.#onDeath(new Error("the store's thread ended")));
  }

  async load(collection: string): Promise<readonly StoredRecord[]> {
    const reply = await this.#request((id) => ({ kind: "load", id, collection }));
    assert(reply.kind === "loaded", `store answered ${reply.kind} to load`);
    return reply.records.map((row) => ({ key: row.key, value: parseJson(row.value), version: row.version }));
  }

  async listEvents(query: {
    readonly subject?: string;
    readonly afterSequence?: number;
    readonly limit: number;
  }): Promise<readonly StoredEvent[]> {
    const { subject, afterSequence = 0, limit } = query;
    const reply = await this.#request((id) => ({ kind: "events", id, subject, afterSequence, limit }));
    assert(reply.kind === "events", `store answered ${reply.kind} to events`);
    return reply.events.map((row) => ({
      sequence: row.sequence,
      type: row.type,
      subject: row.subject,
      wallMs: row.wall_ms,
      data: parseJson(row.data),
    }));
  }

  async commit(changes: readonly StoreChange[]): Promise<void> {
    const wire = changes.map(toWireChange);
    if (wire.length === 0) return;
    this.#requireAlive();
    if (this.#queue.length >= MAX_QUEUED)
      throw new PlatformError("QUEUE_FULL", "Too many writes wait for the disk", { retryAfterMs: 1000 });
    await new Promise<void>((resolve, reject) => {
      this.#queue.push({ changes: wire, resolve, reject });
      this.#pump();
    });
  }

  async close(): Promise<void> {
    this.#closing ??= this.#closeOnce();
    await this.#closing;
  }

  async #closeOnce(): Promise<void> {
    if (this.#queue.length > 0 || this.#groupInFlight) {
      await new Promise<void>((resolve) => {
        this.#idle = resolve;
      });
    }
    if (this.#dead !== undefined) return;
    const exited = new Promise<void>((resolve) => {
      this.#worker.once("exit", () => resolve());
    });
    const done = this.#send((id) => ({ kind: "close", id }));
    await Promise.all([done, exited]);
  }

  async #request(make: (id: number) => WorkerRequest): Promise<WorkerReply> {
    this.#requireAlive();
    return await this.#send(make);
  }

  #requireAlive(): void {
    if (this.#dead !== undefined) throw this.#dead;
    if (this.#closing !== undefined) throw new PlatformError("STORE_UNAVAILABLE", "The state database is closed");
  }

  async #send(make: (id: number) => WorkerRequest): Promise<WorkerReply> {
    const id = this.#nextId;
    this.#nextId += 1;
    return await new Promise((resolve, reject) => {
      this.#pending.set(id, { settle: resolve, reject });
      this.#worker.postMessage(make(id));
    });
  }

  /** Sends the next group unless one is under way. */
  #pump(): void {
    if (this.#groupInFlight || this.#dead !== undefined) return;
    const group = this.#queue.splice(0, MAX_GROUP);
    if (group.length === 0) {
      this.#idle?.();
      return;
    }
    this.#groupInFlight = true;
    const sent = this.#send((id) => ({ kind: "commit", id, commits: group.map((commit) => commit.changes) }));
    const settled = sent.then(
      (reply) => settleGroup(group, reply),
      (error: unknown) => rejectGroup(group, error as PlatformError), // #pending is only ever rejected with one
    );
    void settled.then(() => {
      // never rejects: both branches above only settle callers
      this.#groupInFlight = false;
      this.#pump();
    });
  }

  #onReply(reply: WorkerReply): void {
    const id = reply.kind === "opened" || reply.kind === "open_failed" ? 0 : reply.id;
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if (reply.kind === "open_failed" || reply.kind === "failed") pending?.reject(fromWireError(reply.error));
    else pending?.settle(reply);
  }

  #onDeath(cause: unknown): void {
    if (this.#dead !== undefined) return;
    this.#dead = new PlatformError("STORE_UNAVAILABLE", "The state database does not answer", { cause });
    if (this.#closing === undefined && !this.#pending.has(0)) this.#logger.error({ err: cause }, "store thread died");
    for (const pending of this.#pending.values()) pending.reject(this.#dead);
    this.#pending.clear();
    rejectGroup(this.#queue.splice(0), this.#dead);
    this.#idle?.();
  }
}

function settleGroup(group: readonly QueuedCommit[], reply: WorkerReply): void {
  assert(reply.kind === "committed", `store answered ${reply.kind} to commit`);
  for (const [i, commit] of group.entries()) {
    const error = reply.results[i];
    if (error === undefined) commit.resolve();
    else commit.reject(fromWireError(error));
  }
}

function rejectGroup(group: readonly QueuedCommit[], error: PlatformError): void {
  for (const commit of group) commit.reject(error);
}

/** @throws PlatformError `STORE_CORRUPT` */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new PlatformError("STORE_CORRUPT", "A record of the state database cannot be read", { cause: error });
  }
}

function fromWireError(error: WireError): PlatformError {
  assert(isErrorCode(error.code), `store error ${error.code}`);
  return new PlatformError(error.code, error.message, error.cause === "" ? {} : { cause: new Error(error.cause) });
}

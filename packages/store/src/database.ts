/**
 * The database itself, synchronous: runs in the worker thread only.
 *
 * WAL with `synchronous=FULL`: a transaction is on disk when COMMIT returns. A group of commits is one transaction;
 * each sits in a savepoint of its own, so that a wrong expected version undoes that one alone. If the transaction as a
 * whole fails, each commit is tried again by itself and gets its own answer.
 */
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { planMigration } from "./migrations.ts";
import type { WireChange, WireError, WireEvent, WireRecord, WorkerSettings } from "./worker-protocol.ts";

const SQLITE_BUSY = 5;
const SQLITE_READONLY = 8;
const SQLITE_CORRUPT = 11;
const SQLITE_FULL = 13;
const SQLITE_CANTOPEN = 14;
const SQLITE_NOTADB = 26;

export class StoreFailure extends Error {
  readonly wire: WireError;
  constructor(wire: WireError) {
    super(wire.message);
    this.wire = wire;
  }
}

export class Database {
  readonly #db: DatabaseSync;
  readonly #eventsKept: number;
  readonly #find: StatementSync;
  readonly #put: StatementSync;
  readonly #delete: StatementSync;
  readonly #addEvent: StatementSync;
  readonly #dropEvents: StatementSync;
  readonly #savepoint: StatementSync;
  readonly #release: StatementSync;

  /** @throws StoreFailure */
  constructor(settings: WorkerSettings) {
    this.#db = openDatabase(settings.path);
    this.#eventsKept = settings.eventsKept;
    this.#find = this.#db.prepare("SELECT version FROM records WHERE collection = ? AND key = ?");
    this.#put = this.#db.prepare(
      `INSERT INTO records (collection, key, value, version) VALUES (?, ?, ?, 1)
       ON CONFLICT (collection, key) DO UPDATE SET value = excluded.value, version = version + 1`,
    );
    this.#delete = this.#db.prepare("DELETE FROM records WHERE collection = ? AND key = ?");
    this.#addEvent = this.#db.prepare("INSERT INTO events (type, subject, wall_ms, data) VALUES (?, ?, ?, ?)");
    this.#savepoint = this.#db.prepare("SAVEPOINT one");
    this.#release = this.#db.prepare("RELEASE one");
    this.#dropEvents = this.#db.prepare("DELETE FROM events WHERE sequence <= (SELECT max(sequence) FROM events) - ?");
  }

  commitGroup(commits: readonly (readonly WireChange[])[]): readonly (WireError | undefined)[] {
    try {
      return this.#transact(commits);
    } catch (error) {
      if (commits.length === 1) return [toWireError(error)];
      return commits.map((changes) => this.commitGroup([changes])[0]);
    }
  }

  load(collection: string): readonly WireRecord[] {
    const rows = this.#db.prepare("SELECT key, value, version FROM records WHERE collection = ? ORDER BY key").all(collection);
    return rows as unknown as WireRecord[]; // the columns selected
  }

  listEvents(query: {
    readonly subject: string | undefined;
    readonly afterSequence: number;
    readonly limit: number;
  }): readonly WireEvent[] {
    const columns = "SELECT sequence, type, subject, wall_ms, data FROM events WHERE sequence > ?";
    const rows =
      query.subject === undefined
        ? this.#db.prepare(`${columns} ORDER BY sequence LIMIT ?`).all(query.afterSequence, query.limit)
        : this.#db.prepare(`${columns} AND subject = ? ORDER BY sequence LIMIT ?`).all(query.afterSequence, query.subject, query.limit);
    return rows as unknown as WireEvent[]; // the columns selected
  }

  close(): void {
    this.#db.close();
  }

  /** @throws when the transaction as a whole failed; nothing of it is kept then. */
  #transact(commits: readonly (readonly WireChange[])[]): readonly (WireError | undefined)[] {
    this.#db.exec("BEGIN IMMEDIATE");
    try {
      const results = commits.map((changes) => this.#applyInSavepoint(changes));
      if (commits.some((changes) => changes.some((change) => change.kind === "event"))) this.#dropEvents.run(this.#eventsKept);
      this.#db.exec("COMMIT");
      return results;
    } catch (error) {
      if (this.#db.isTransaction) this.#db.exec("ROLLBACK");
      throw error;
    }
  }

  #applyInSavepoint(changes: readonly WireChange[]): WireError | undefined {
    this.#savepoint.run();
    try {
      for (const change of changes) this.#apply(change);
    } catch (error) {
      if (!(error instanceof StoreFailure)) throw error;
      this.#db.exec("ROLLBACK TO one");
      this.#release.run();
      return error.wire;
    }
    this.#release.run();
    return undefined;
  }

  #apply(change: WireChange): void {
    switch (change.kind) {
      case "put":
        this.#requireVersion(change);
        this.#put.run(change.collection, change.key, change.json);
        break;
      case "delete":
        this.#delete.run(change.collection, change.key);
        break;
      case "event":
        this.#addEvent.run(change.type, change.subject, Math.round(change.wallMs), change.json);
        break;
    }
  }

  #requireVersion(change: WireChange & { readonly kind: "put" }): void {
    if (change.expectedVersion === undefined) return;
    const row = this.#find.get(change.collection, change.key);
    const found = row === undefined ? 0 : Number(row["version"]);
    if (found === change.expectedVersion) return;
    const message = `Record ${change.collection}/${change.key} changed in between: version ${found}, expected ${change.expectedVersion}`;
    throw new StoreFailure({ code: "STORE_CONFLICT", message, cause: "" });
  }
}

function openDatabase(path: string): DatabaseSync {
  let db: DatabaseSync | undefined;
  try {
    db = new DatabaseSync(path, { timeout: 0 });
    // Exclusive: a second daemon on this directory is turned away here even if its lock file was lost.
    db.exec("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
    const check = db.prepare("PRAGMA quick_check(1)").get()?.["quick_check"];
    if (check !== "ok") throw new StoreFailure({ code: "STORE_CORRUPT", message: "The state database is corrupt", cause: String(check) });
    migrate(db);
    return db;
  } catch (error) {
    db?.close();
    throw error instanceof StoreFailure ? error : new StoreFailure(toWireError(error, true));
  }
}

function migrate(db: DatabaseSync): void {
  const found = Number(db.prepare("PRAGMA user_version").get()?.["user_version"]);
  const steps = planMigration(found);
  if (steps === undefined) {
    throw new StoreFailure({
      code: "STORE_TOO_NEW",
      message: "A newer version wrote the state database",
      cause: `schema version ${found}`,
    });
  }
  for (const step of steps) db.exec(`BEGIN IMMEDIATE; ${step.sql}; PRAGMA user_version = ${step.to}; COMMIT`);
}

export function toWireError(error: unknown, opening = false): WireError {
  if (error instanceof StoreFailure) return error.wire;
  const cause = error instanceof Error ? error.message : String(error);
  const extended: unknown = error instanceof Error && "errcode" in error ? error.errcode : undefined;
  switch (typeof extended === "number" ? extended & 0xff : undefined) {
    case SQLITE_FULL:
      return { code: "HOST_OUT_OF_SPACE", message: "The disk of the state directory is full", cause };
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return { code: "STORE_CORRUPT", message: "The state database is corrupt", cause };
    case SQLITE_BUSY:
      return { code: "STATE_DIR_LOCKED", message: "Another process uses the state database", cause };
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
      return opening
        ? { code: "STATE_DIR_UNUSABLE", message: "The state database cannot be opened for writing", cause }
        : { code: "STORE_UNAVAILABLE", message: "The state database cannot be written", cause };
    default:
      return { code: "STORE_UNAVAILABLE", message: "The state database failed", cause };
  }
}

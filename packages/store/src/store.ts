/**
 * Durable records of one state directory. Reads happen once, at start; afterwards each owner holds its records in
 * memory and commits changes. A commit resolves when it is on disk; several commits share one fsync (group commit).
 */

/** A JSON document under a key. `version` counts its writes, from 1. */
export interface StoredRecord {
  readonly key: string;
  readonly value: unknown;
  readonly version: number;
}

export type Collection = "vms" | "images" | "kernels" | "leases" | "meta";

/** Changes of one commit are all durable or none is. `expectedVersion` 0 means "must not exist". */
export type StoreChange =
  | {
      readonly kind: "put";
      readonly collection: Collection;
      readonly key: string;
      readonly value: unknown;
      readonly expectedVersion?: number | undefined;
    }
  | { readonly kind: "delete"; readonly collection: Collection; readonly key: string }
  | { readonly kind: "event"; readonly type: string; readonly subject: string; readonly wallMs: number; readonly data: unknown };

export interface StoredEvent {
  readonly sequence: number;
  readonly type: string;
  readonly subject: string;
  readonly wallMs: number;
  readonly data: unknown;
}

export interface Store {
  load(collection: Collection): Promise<readonly StoredRecord[]>;
  /** @throws PlatformError `STORE_CONFLICT` (expected version), `HOST_OUT_OF_SPACE`, `STORE_UNAVAILABLE`. */
  commit(changes: readonly StoreChange[]): Promise<void>;
  listEvents(query: {
    readonly subject?: string;
    readonly afterSequence?: number;
    readonly limit: number;
  }): Promise<readonly StoredEvent[]>;
  /** Waits for pending commits and closes. */
  close(): Promise<void>;
}

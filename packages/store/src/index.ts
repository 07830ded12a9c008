export { openSqliteStore, type SqliteStoreOptions } from "./sqlite-store.ts";
export type { Collection, Store, StoreChange, StoredEvent, StoredRecord } from "./store.ts";

export type { Collection, Store, StoreChange, StoredEvent, StoredRecord } from "./store.ts";

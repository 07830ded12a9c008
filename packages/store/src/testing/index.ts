export { runStoreConformance, type OpenStore, type StoreUnderTest } from "./conformance.ts";
export { createMemoryStore, type CommitFate, type MemoryStore, type MemoryStoreOptions, type StoreSnapshot } from "./memory-store.ts";

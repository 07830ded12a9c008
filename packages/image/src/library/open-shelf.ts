/** What images and kernels have alike: content store, leases and library of one kind under one state directory. */
import { join } from "node:path";
import type { Clock, Random } from "@fluxvm/core";
import type { Store } from "@fluxvm/store";
import type { Logger } from "@fluxvm/telemetry";
import { ContentStore } from "./content-store.ts";
import { Leases, type LeaseKind } from "./leases.ts";
import { Library } from "./library.ts";
import { Slots } from "./slots.ts";

export interface ShelfOptions {
  readonly kind: LeaseKind;
  readonly stateDir: string;
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly importTimeoutMs: number;
  readonly parallelImports: number;
  readonly maxWaiting: number;
}

export interface Shelf<Content extends { readonly digest: string }> {
  readonly files: ContentStore;
  readonly leases: Leases;
  readonly library: Library<Content>;
  /** Loads records and leases and removes what a crash left half-made. */
  load(): Promise<void>;
}

export function openShelf<Content extends { readonly digest: string }>(options: ShelfOptions): Shelf<Content> {
  const { kind, stateDir, store, clock, random, logger, importTimeoutMs, parallelImports, maxWaiting } = options;
  const leases = new Leases(kind);
  const files = new ContentStore({
    root: join(stateDir, `${kind}s`),
    tmp: join(stateDir, "tmp", `${kind}s`),
    random,
    isReferenced: (digest) => library.isReferenced(digest),
  });
  const slots = new Slots({ count: parallelImports, maxWaiting });
  const library = new Library<Content>({ kind, store, files, slots, clock, random, logger, importTimeoutMs });
  return {
    files,
    leases,
    library,
    async load() {
      await leases.load(store);
      await library.load();
      await files.start();
      await library.checkFiles();
    },
  };
}

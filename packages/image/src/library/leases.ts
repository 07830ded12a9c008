/**
 * Who uses which image or kernel. A lease counts in memory from the moment it is asked for; the change that makes it
 * durable is committed by its owner together with the owner's own record, so that neither exists without the other.
 */
import { PlatformError } from "@fluxvm/core";
import type { Store, StoreChange } from "@fluxvm/store";

export type LeaseKind = "image" | "kernel";

interface Lease {
  readonly kind: LeaseKind;
  readonly objectId: string;
  readonly ownerId: string;
}

export class Leases {
  readonly #kind: LeaseKind;
  readonly #leases = new Map<string, Lease>();

  constructor(kind: LeaseKind) {
    this.#kind = kind;
  }

  async load(store: Store): Promise<void> {
    for (const { key, value } of await store.load("leases")) {
      const lease = parseLease(value);
      if (lease?.kind === this.#kind) this.#leases.set(key, lease);
    }
  }

  take(objectId: string, ownerId: string): StoreChange {
    const lease: Lease = { kind: this.#kind, objectId, ownerId };
    const key = `${this.#kind}/${objectId}/${ownerId}`;
    this.#leases.set(key, lease);
    return { kind: "put", collection: "leases", key, value: lease };
  }

  /** Drops every lease of an owner. */
  release(ownerId: string): StoreChange[] {
    const changes: StoreChange[] = [];
    for (const [key, lease] of this.#leases) {
      if (lease.ownerId !== ownerId) continue;
      this.#leases.delete(key);
      changes.push({ kind: "delete", collection: "leases", key });
    }
    return changes;
  }

  usedBy(objectId: string): string[] {
    const owners: string[] = [];
    for (const lease of this.#leases.values()) if (lease.objectId === objectId) owners.push(lease.ownerId);
    return owners.toSorted();
  }

  /** Every owner, for the manager to drop those that no longer exist. */
  owners(): string[] {
    return [...new Set([...this.#leases.values()].map((lease) => lease.ownerId))].toSorted();
  }

  requireUnused(objectId: string, name: string): void {
    const [first, ...rest] = this.usedBy(objectId);
    if (first === undefined) return;
    const others = rest.length === 0 ? "" : ` and ${rest.length} more`;
    const code = this.#kind === "image" ? "IMAGE_IN_USE" : "KERNEL_IN_USE";
    throw new PlatformError(code, `Cannot delete ${this.#kind} ${JSON.stringify(name)}: in use by ${first}${others}`);
  }
}

function parseLease(value: unknown): Lease | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const row = value as Partial<Record<keyof Lease, unknown>>; // each field is looked at below
  if (typeof row.objectId !== "string" || typeof row.ownerId !== "string") return undefined;
  if (row.kind !== "image" && row.kind !== "kernel") return undefined;
  return { kind: row.kind, objectId: row.objectId, ownerId: row.ownerId };
}

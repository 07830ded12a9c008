/**
 * The VMs of this daemon and what must be unique among them: names, user ids, host ports.
 *
 * A name or a user id is reserved before anything is durable and belongs to the VM until nothing is left of it.
 * Invariant: a name leads to exactly one VM or one reservation. Holds drivers; changes no VM.
 */
import { PlatformError } from "@fluxvm/core";
import type { Owner, VmDriver, VmSnapshot } from "@fluxvm/engine";
import { describeForward, overlaps } from "./admission.ts";
import type { VmUsers } from "./ports.ts";

export class Fleet {
  readonly #users: VmUsers;
  readonly #drivers = new Map<string, VmDriver>();
  /** Id of the VM that has the name; `undefined` while reserved for one to come. */
  readonly #names = new Map<string, string | undefined>();
  readonly #uids = new Set<number>();

  constructor(users: VmUsers) {
    this.#users = users;
  }

  list(): readonly VmDriver[] {
    return [...this.#drivers.values()];
  }

  /** By id, else by name. */
  find(reference: string): VmDriver | undefined {
    const byId = this.#drivers.get(reference);
    if (byId !== undefined) return byId;
    const id = this.#names.get(reference);
    return id === undefined ? undefined : this.#drivers.get(id);
  }

  /** @throws PlatformError `VM_NOT_FOUND` */
  get(reference: string): VmDriver {
    const driver = this.find(reference);
    if (driver === undefined) throw new PlatformError("VM_NOT_FOUND", `There is no VM "${reference.slice(0, 80)}"`);
    return driver;
  }

  /** Takes in a VM that has its name and user id; lets go of both when it is gone. */
  add(driver: VmDriver): void {
    const { record } = driver.snapshot;
    this.#drivers.set(driver.id, driver);
    this.#names.set(record.name, driver.id);
    if (this.#users.kind === "range") this.#uids.add(record.owner.uid);
    driver.subscribe((snapshot) => {
      if (snapshot.state.phase === "gone") this.#remove(snapshot);
    });
  }

  /** @throws PlatformError `VM_NAME_TAKEN` */
  reserveName(name: string): void {
    if (this.#names.has(name)) throw new PlatformError("VM_NAME_TAKEN", `A VM named "${name}" exists`);
    this.#names.set(name, undefined);
  }

  releaseName(name: string): void {
    if (this.#names.get(name) === undefined) this.#names.delete(name);
  }

  /** Runs `change` with the new name reserved, and keeps it only if that succeeds. */
  async rename(driver: VmDriver, name: string, change: () => Promise<VmSnapshot>): Promise<VmSnapshot> {
    const before = driver.snapshot.record.name;
    if (name === before) return await change();
    this.reserveName(name);
    try {
      const snapshot = await change();
      // Another rename may have come first; the names the VM does not bear any more are free.
      for (const [other, id] of this.#names) if (id === driver.id) this.#names.delete(other);
      if (this.#drivers.has(driver.id)) this.#names.set(driver.snapshot.record.name, driver.id);
      return snapshot;
    } finally {
      this.releaseName(name);
    }
  }

  /** The lowest free user id. @throws PlatformError `UID_RANGE_EXHAUSTED` */
  reserveOwner(): Owner {
    const users = this.#users;
    if (users.kind === "shared") return { uid: users.uid, gid: users.gid };
    for (let uid = users.start; uid < users.start + users.count; uid += 1) {
      if (this.#uids.has(uid)) continue;
      this.#uids.add(uid);
      return { uid, gid: uid };
    }
    throw new PlatformError("UID_RANGE_EXHAUSTED", `All ${users.count} user ids from ${users.start} on are in use by VMs`);
  }

  releaseOwner(owner: Owner): void {
    this.#uids.delete(owner.uid);
  }

  /** @throws PlatformError `PORT_IN_USE` when another VM forwards the same port of the host, whether it runs or not. */
  requireFreePorts(forwards: readonly Parameters<typeof describeForward>[0][]): void {
    const wanted = forwards.map(describeForward);
    if (wanted.length === 0) return;
    for (const driver of this.#drivers.values()) {
      const { name, spec } = driver.snapshot.record;
      const taken = spec.network.mode === "user" ? (spec.network.forwards ?? []).map(describeForward) : [];
      const clash = wanted.find((want) => taken.some((other) => overlaps(want, other)));
      if (clash !== undefined) throw new PlatformError("PORT_IN_USE", `Cannot forward ${clash}: VM "${name}" does already`);
    }
  }

  async closeAll(): Promise<void> {
    await Promise.all(this.list().map(async (driver) => await driver.close()));
  }

  #remove(snapshot: VmSnapshot): void {
    const { id, owner } = snapshot.record;
    if (!this.#drivers.delete(id)) return;
    for (const [name, holder] of this.#names) if (holder === id) this.#names.delete(name);
    if (this.#users.kind === "range") this.#uids.delete(owner.uid);
  }
}

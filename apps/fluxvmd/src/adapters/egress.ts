/** What guests may reach, by the user id of their VM: the host's egress guard, or nothing to do where there is none. */
import { PlatformError } from "@fluxvm/core";
import type { Egress } from "@fluxvm/engine";
import type { EgressGuard } from "@fluxvm/host";
import type { Store } from "@fluxvm/store";

const CLOSE_TIMEOUT_MS = 5000;

export interface ClosableEgress extends Egress {
  /** Takes the instance's table away when no VM needs it any more. */
  close(): Promise<void>;
}

export interface EgressOptions {
  readonly guard: EgressGuard;
  /** Ids of the VMs in the store, by their uid. */
  readonly owners: ReadonlyMap<number, string>;
}

/**
 * The guard's rules are named by uid alone, and a uid belongs to one VM as long as its record lives: a rule found by
 * listing is told to be of the VM that has the uid. One that nobody has gets a name that no VM has.
 */
export function createEgress({ guard, owners: stored }: EgressOptions): ClosableEgress {
  const owners = new Map(stored);
  const nameOf = (uid: number): string => owners.get(uid) ?? `uid-${uid}`;
  return {
    async ensure({ vmId, uid, allowCidrs }, call) {
      owners.set(uid, vmId);
      await guard.ensureVm({ uid, allow: "none", allowCidrs }, call);
    },
    async remove({ uid }, call) {
      await guard.removeVm(uid, call);
      owners.delete(uid);
    },
    list: async (call) => (await guard.list(call)).map((uid) => ({ vmId: nameOf(uid), uid })),
    async close() {
      const call = { signal: AbortSignal.timeout(CLOSE_TIMEOUT_MS) };
      if ((await guard.list(call)).length === 0) await guard.removeAll(call);
    },
  };
}

/** Without root or nft there are no rules by user id: user-mode networking is refused rather than left open. */
export function createRefusingEgress(reason: string): ClosableEgress {
  return {
    ensure: async () => {
      throw new PlatformError("HOST_CAPABILITY_MISSING", `Cannot give the VM a network: ${reason}. Create it with network mode "none"`);
    },
    remove: async () => undefined,
    list: async () => [],
    close: async () => undefined,
  };
}

/** Which VM has which uid, as the store knows it at start. Records that cannot be read are the engine's to complain about. */
export async function loadUidOwners(store: Pick<Store, "load">): Promise<ReadonlyMap<number, string>> {
  const owners = new Map<number, string>();
  for (const { key, value } of await store.load("vms")) {
    const uid = (value as { readonly owner?: { readonly uid?: unknown } } | null)?.owner?.uid; // looked at, not trusted
    if (typeof uid === "number") owners.set(uid, key);
  }
  return owners;
}

/**
 * The durable record of one VM: collection `vms`, keyed by id. It is there before anything is made on the host and goes
 * when nothing is left; the leases of its image and kernel are written and removed in the same commits.
 */
import type { CloudInitSpec, Labels, NetworkSpec } from "@fluxvm/contracts";
import { PlatformError } from "@fluxvm/core";
import type { StoreChange, StoredRecord } from "@fluxvm/store";
import type { DiskPlan } from "@fluxvm/vmm";
import type { Deadline } from "./deadline.ts";
import type { GuestWorkload } from "./guest-config.ts";
import type { HeldArtifacts, ImageInfo, KernelInfo, Owner } from "./ports.ts";
import { type StoredVmState, VM_PHASES } from "./vm-state.ts";

/** What was asked for, resolved and checked. Never changes. */
export interface VmSpec {
  readonly vcpus: number;
  readonly memoryMib: number;
  readonly accel: "auto" | "kvm" | "tcg";
  readonly image?: Pick<ImageInfo, "id" | "name" | "kind"> | undefined;
  /** Size of the root disk; present with an image. */
  readonly diskBytes?: number | undefined;
  readonly boot: BootSpec;
  readonly network: NetworkSpec;
  readonly hostname: string;
  /** Whether there is a channel to a guest agent. */
  readonly agent: boolean;
  /** Whether the guest reads a config disk: for the agent, or for the initrd that mounts the root. */
  readonly configDisk: boolean;
  readonly init: "auto" | "agent" | "image";
  readonly workload?: GuestWorkload | undefined;
  readonly cloudInit?: CloudInitSpec | undefined;
}

export type BootSpec =
  | { readonly kind: "kernel"; readonly kernel: KernelInfo; readonly args: string }
  | { readonly kind: "firmware"; readonly firmware: "uefi" | "bios" };

export interface VmRecord {
  readonly format: 1;
  readonly id: string;
  readonly name: string;
  readonly labels: Labels;
  readonly backend: string;
  readonly owner: Owner;
  /** Of the network device, if there is one. */
  readonly mac?: string | undefined;
  /** The secret guest agent and host share. */
  readonly token: string;
  readonly spec: VmSpec;
  readonly createdAtWallMs: number;
  readonly startedAtWallMs?: number | undefined;
  readonly deadline?: Deadline | undefined;
  /** Present once the root disk is complete: until then it is made anew. */
  readonly rootDisk?: DiskPlan | undefined;
  /** The host's boot in which `state` was written. */
  readonly bootId: string;
  readonly state: StoredVmState;
}

export function getHeldArtifacts(spec: VmSpec): HeldArtifacts {
  return { imageId: spec.image?.id, kernelId: spec.boot.kind === "kernel" ? spec.boot.kernel.id : undefined };
}

/** The change that writes a new record. The key must not exist. */
export function planInsert(record: VmRecord): StoreChange {
  return { kind: "put", collection: "vms", key: record.id, value: record, expectedVersion: 0 };
}

export function planUpdate(record: VmRecord): StoreChange {
  return { kind: "put", collection: "vms", key: record.id, value: record };
}

export function planRemoval(record: VmRecord): StoreChange {
  return { kind: "delete", collection: "vms", key: record.id };
}

/** @throws PlatformError `STORE_CORRUPT`, `STORE_TOO_NEW`: a record that cannot be read is never dropped. */
export function parseVmRecord(stored: StoredRecord): VmRecord {
  const value = stored.value as Partial<VmRecord> | null; // checked below, field by field where a wrong one would do harm
  if (typeof value === "object" && value !== null && typeof value.format === "number" && value.format > 1) {
    throw new PlatformError("STORE_TOO_NEW", `A newer version wrote the record of ${stored.key}`);
  }
  const phase = value?.state?.phase;
  const isReadable =
    value?.format === 1 &&
    value.id === stored.key &&
    typeof value.name === "string" &&
    typeof value.backend === "string" &&
    typeof value.owner?.uid === "number" &&
    typeof value.spec?.vcpus === "number" &&
    phase !== undefined &&
    VM_PHASES.includes(phase);
  if (!isReadable) throw new PlatformError("STORE_CORRUPT", `The record of ${stored.key} cannot be read`); // its value holds a secret
  return value as VmRecord; // only this code writes records of format 1
}

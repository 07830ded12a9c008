/** What a finished image or kernel consists of. Stored in its record and beside its files. */
import type { ImageConfig } from "@fluxvm/contracts";

export interface ImageContent {
  /** `sha256:…` over every input that shaped the disk. */
  readonly digest: string;
  readonly kind: "rootfs" | "disk";
  readonly format: "raw" | "qcow2";
  /** Name of the disk's file in the digest's directory. */
  readonly file: string;
  readonly virtualSizeBytes: number;
  readonly storedBytes: number;
  readonly config?: ImageConfig;
}

export interface KernelContent {
  /** `sha256:…` over kernel, modules, agent and what packs them. */
  readonly digest: string;
  readonly release?: string;
  readonly hasInitrd: boolean;
  readonly hasAgent: boolean;
  readonly storedBytes: number;
}

export const DISK_RAW = "disk.raw";
export const DISK_QCOW2 = "disk.qcow2";

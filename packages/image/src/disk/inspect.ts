/** What a disk file is, by its content. Formats that are not read are refused by name. */
import type { FileHandle } from "node:fs/promises";
import { PlatformError } from "@fluxvm/core";
import { furthestByteOfEntry, parseQcow2Header, QCOW2_HEAD_BYTES, QCOW2_MAGIC, type Qcow2Header } from "./qcow2.ts";

export interface DiskFacts {
  readonly format: "raw" | "qcow2";
  readonly kind: "rootfs" | "disk";
  readonly virtualSizeBytes: number;
}

/** Offset of ext4's magic number: the super block is at 1024, the field at 56 (kernel documentation, ext4 globals). */
const EXT4_SUPERBLOCK = 1024;
const EXT4_MAGIC = 0xef53;
const SUPERBLOCK_BYTES = 1024;

const REFUSED: readonly { readonly magic: Buffer; readonly name: string }[] = [
  { magic: Buffer.from("KDMV"), name: "VMDK" },
  { magic: Buffer.from("# Disk DescriptorFile"), name: "VMDK" },
  { magic: Buffer.from("vhdxfile"), name: "VHDX" },
  { magic: Buffer.from("conectix"), name: "VHD" },
  { magic: Buffer.from("<<< "), name: "VDI" },
  { magic: Buffer.from("LUKS\xba\xbe", "latin1"), name: "LUKS" },
  { magic: Buffer.from([0x1f, 0x8b]), name: "gzip" },
  { magic: Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a]), name: "xz" },
  { magic: Buffer.from([0x28, 0xb5, 0x2f, 0xfd]), name: "zstd" },
  { magic: Buffer.from("<!DOCTYPE", "latin1"), name: "HTML" },
  { magic: Buffer.from("PK\x03\x04", "latin1"), name: "zip" },
];

/** @throws PlatformError `IMAGE_MALFORMED`, `IMAGE_TRUNCATED` */
export async function inspectDisk(handle: FileHandle, name: string): Promise<DiskFacts> {
  const { size } = await handle.stat();
  const head = await readAt(handle, 0, Math.min(QCOW2_HEAD_BYTES, size));
  if (head.length < 512) throw new PlatformError("IMAGE_TRUNCATED", `The disk ${JSON.stringify(name)} has only ${head.length} bytes`);
  const refused = REFUSED.find(({ magic }) => head.subarray(0, magic.length).equals(magic));
  if (refused !== undefined)
    throw new PlatformError("IMAGE_MALFORMED", `The disk ${JSON.stringify(name)} is ${refused.name}; only raw and qcow2 are taken`);
  if (head.readUInt32BE(0) !== QCOW2_MAGIC) return await inspectRaw(handle, head, { size, name });
  const header = parseQcow2Header(head, name);
  await refuseTruncated(handle, header, { size, name });
  const superblock = await readGuest(handle, header, EXT4_SUPERBLOCK);
  return {
    format: "qcow2",
    kind: superblock !== undefined && isExt4(superblock) ? "rootfs" : "disk",
    virtualSizeBytes: header.virtualBytes,
  };
}

async function inspectRaw(
  handle: FileHandle,
  head: Buffer,
  { size, name }: { readonly size: number; readonly name: string },
): Promise<DiskFacts> {
  const superblock = head.subarray(EXT4_SUPERBLOCK, EXT4_SUPERBLOCK + SUPERBLOCK_BYTES);
  const needed = isExt4(superblock) ? ext4Bytes(superblock) : gptBytes(head);
  if (needed > size)
    throw new PlatformError("IMAGE_TRUNCATED", `The disk ${JSON.stringify(name)} has ${size} bytes but says it needs ${needed}`);
  const footer = await readAt(handle, size - 512, 512);
  if (footer.toString("latin1", 0, 8) === "conectix")
    throw new PlatformError("IMAGE_MALFORMED", `The disk ${JSON.stringify(name)} is VHD; only raw and qcow2 are taken`);
  return { format: "raw", kind: isExt4(superblock) ? "rootfs" : "disk", virtualSizeBytes: size };
}

function isExt4(superblock: Buffer): boolean {
  return superblock.length >= SUPERBLOCK_BYTES && superblock.readUInt16LE(56) === EXT4_MAGIC && superblock.readUInt32LE(24) <= 6;
}

function ext4Bytes(superblock: Buffer): number {
  const is64bit = (superblock.readUInt32LE(96) & 0x80) !== 0;
  const blocks = superblock.readUInt32LE(4) + (is64bit ? superblock.readUInt32LE(0x150) * 2 ** 32 : 0);
  return blocks * 1024 * 2 ** superblock.readUInt32LE(24);
}

/** The end of a disk with a GUID partition table: its backup header is in the last sector (UEFI, section 5.3.2). */
function gptBytes(head: Buffer): number {
  if (head.length < 1024 || head.toString("latin1", 512, 520) !== "EFI PART") return 0;
  const lastSector = head.readBigUInt64LE(512 + 32);
  return lastSector < 2n ** 44n ? (Number(lastSector) + 1) * 512 : 0;
}

/** Every cluster that the tables name must be in the file. */
async function refuseTruncated(
  handle: FileHandle,
  header: Qcow2Header,
  { size, name }: { readonly size: number; readonly name: string },
): Promise<void> {
  const refuse = (): never => {
    throw new PlatformError("IMAGE_TRUNCATED", `The qcow2 disk ${JSON.stringify(name)} ends before data that its tables name`);
  };
  const clusterBytes = 2 ** header.clusterBits;
  if (header.l1Offset + header.l1Entries * 8 > size) refuse();
  const l1 = await readAt(handle, header.l1Offset, header.l1Entries * 8);
  const step = header.extendedL2 ? 16 : 8;
  for (let index = 0; index + 8 <= l1.length; index += 8) {
    const entry = l1.readBigUInt64BE(index);
    const end = furthestByteOfEntry(entry, header, "l1");
    if (end === 0) continue;
    if (end > size) refuse();
    const l2 = await readAt(handle, end - clusterBytes, clusterBytes);
    for (let at = 0; at + 8 <= l2.length; at += step) if (furthestByteOfEntry(l2.readBigUInt64BE(at), header, "l2") > size + 512) refuse();
  }
}

/** The super block as the guest would see it; `undefined` where its cluster is absent or compressed. */
async function readGuest(handle: FileHandle, header: Qcow2Header, offset: number): Promise<Buffer | undefined> {
  const clusterBytes = 2 ** header.clusterBits;
  const entries = clusterBytes / (header.extendedL2 ? 16 : 8);
  const cluster = Math.floor(offset / clusterBytes);
  const l1 = await readAt(handle, header.l1Offset + 8 * Math.floor(cluster / entries), 8);
  const l2Offset = Number(l1.readBigUInt64BE(0) & 0x00ff_ffff_ffff_fe00n);
  if (l2Offset === 0) return undefined;
  const l2 = (await readAt(handle, l2Offset + (cluster % entries) * (header.extendedL2 ? 16 : 8), 8)).readBigUInt64BE(0);
  const data = Number(l2 & 0x00ff_ffff_ffff_fe00n);
  if ((l2 & (1n << 62n)) !== 0n || (l2 & 1n) !== 0n || data === 0) return undefined;
  const within = offset % clusterBytes;
  if (within + SUPERBLOCK_BYTES > clusterBytes) return undefined;
  return await readAt(handle, data + within, SUPERBLOCK_BYTES);
}

async function readAt(handle: FileHandle, position: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  let done = 0;
  while (done < length) {
    const { bytesRead } = await handle.read(buffer, done, length - done, position + done);
    if (bytesRead === 0) break;
    done += bytesRead;
  }
  return buffer;
}

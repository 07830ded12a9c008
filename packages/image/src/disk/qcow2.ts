/**
 * The qcow2 format, as far as we write and judge it (QEMU, docs/interop/qcow2.txt). All numbers are big-endian.
 * `encodeOverlay` makes an empty version 3 image over a backing file; `parseQcow2Header` reads a header somebody else
 * wrote and refuses what would make QEMU open another file or what we cannot vouch for.
 */
import { assert, PlatformError } from "@fluxvm/core";

export const QCOW2_MAGIC = 0x5146_49fb;
const CLUSTER_BITS = 16;
const CLUSTER_BYTES = 2 ** CLUSTER_BITS;
/** Bytes of guest disk that one L1 entry covers: a cluster of 8-byte L2 entries, each for a cluster. */
const BYTES_PER_L1_ENTRY = CLUSTER_BYTES * (CLUSTER_BYTES / 8);
const HEADER_BYTES = 104;
const EXTENSION_BACKING_FORMAT = 0xe279_2aca;
const EXTENSION_END = 0;
const EXTENSION_DATA_FILE = 0x4441_5441;
const EXTENSION_CRYPTO = 0x0537_be77;
/** QEMU's own bound on a backing file's name. */
const MAX_BACKING_NAME_BYTES = 1023;
const MAX_VIRTUAL_BYTES = 2 ** 46;
const INCOMPATIBLE = { dirty: 1n, corrupt: 2n, externalData: 4n, compressionType: 8n, extendedL2: 16n } as const;

export interface OverlayLayout {
  /** Header, refcount table, refcount block and the start of the L1 table; everything after is zero. */
  readonly head: Uint8Array;
  readonly fileBytes: number;
}

/** The bytes of an empty overlay. `virtualBytes` is a multiple of 512. */
export function encodeOverlay(options: {
  readonly backingPath: string;
  readonly backingFormat: string;
  readonly virtualBytes: number;
}): OverlayLayout {
  const { backingPath, backingFormat, virtualBytes } = options;
  assert(virtualBytes > 0 && virtualBytes % 512 === 0 && virtualBytes <= MAX_VIRTUAL_BYTES, "overlay size");
  const name = Buffer.from(backingPath, "utf8");
  assert(name.length > 0 && name.length <= MAX_BACKING_NAME_BYTES, "backing file name");
  const format = Buffer.from(backingFormat, "latin1");
  const l1Entries = Math.ceil(virtualBytes / BYTES_PER_L1_ENTRY);
  const l1Clusters = Math.ceil((l1Entries * 8) / CLUSTER_BYTES);
  const usedClusters = 3 + l1Clusters;

  const head = Buffer.alloc(3 * CLUSTER_BYTES);
  const extensionBytes = 8 + Math.ceil(format.length / 8) * 8 + 8;
  head.writeUInt32BE(QCOW2_MAGIC, 0);
  head.writeUInt32BE(3, 4);
  head.writeBigUInt64BE(BigInt(HEADER_BYTES + extensionBytes), 8);
  head.writeUInt32BE(name.length, 16);
  head.writeUInt32BE(CLUSTER_BITS, 20);
  head.writeBigUInt64BE(BigInt(virtualBytes), 24);
  head.writeUInt32BE(l1Entries, 36);
  head.writeBigUInt64BE(BigInt(3 * CLUSTER_BYTES), 40); // L1 table
  head.writeBigUInt64BE(BigInt(CLUSTER_BYTES), 48); // refcount table
  head.writeUInt32BE(1, 56); // clusters of it
  head.writeUInt32BE(4, 96); // refcount order: 16-bit counts
  head.writeUInt32BE(HEADER_BYTES, 100);
  head.writeUInt32BE(EXTENSION_BACKING_FORMAT, HEADER_BYTES);
  head.writeUInt32BE(format.length, HEADER_BYTES + 4);
  format.copy(head, HEADER_BYTES + 8);
  name.copy(head, HEADER_BYTES + extensionBytes);
  head.writeBigUInt64BE(BigInt(2 * CLUSTER_BYTES), CLUSTER_BYTES);
  for (let cluster = 0; cluster < usedClusters; cluster += 1) head.writeUInt16BE(1, 2 * CLUSTER_BYTES + 2 * cluster);
  return { head, fileBytes: usedClusters * CLUSTER_BYTES };
}

export interface Qcow2Header {
  readonly version: 2 | 3;
  readonly virtualBytes: number;
  readonly clusterBits: number;
  readonly l1Entries: number;
  readonly l1Offset: number;
  readonly extendedL2: boolean;
}

/** Bytes from the start of a file that `parseQcow2Header` wants to see. */
export const QCOW2_HEAD_BYTES = 65_536;

/** @throws PlatformError `IMAGE_MALFORMED`, naming what is wrong. `head` is the start of the file, shorter only if the file is. */
export function parseQcow2Header(head: Buffer, name: string): Qcow2Header {
  const refuse = (why: string): never => {
    throw new PlatformError("IMAGE_MALFORMED", `Cannot use qcow2 disk ${JSON.stringify(name)}: ${why}`);
  };
  if (head.length < 72) throw new PlatformError("IMAGE_TRUNCATED", `The qcow2 disk ${JSON.stringify(name)} ends within its header`);
  const version = head.readUInt32BE(4);
  if (version !== 2 && version !== 3) return refuse(`version ${version} is not known`);
  if (version === 3 && head.length < HEADER_BYTES)
    throw new PlatformError("IMAGE_TRUNCATED", `The qcow2 disk ${JSON.stringify(name)} ends within its header`);
  if (head.readBigUInt64BE(8) !== 0n || head.readUInt32BE(16) !== 0) refuse("it refers to a backing file");
  if (head.readUInt32BE(32) !== 0) refuse("it is encrypted");
  const clusterBits = head.readUInt32BE(20);
  if (clusterBits < 9 || clusterBits > 21) refuse(`cluster size 2^${clusterBits} is out of range`);
  const features = version === 3 ? head.readBigUInt64BE(72) : 0n;
  if ((features & INCOMPATIBLE.externalData) !== 0n) refuse("it refers to an external data file");
  if ((features & INCOMPATIBLE.corrupt) !== 0n) refuse("it is marked corrupt");
  if ((features & INCOMPATIBLE.dirty) !== 0n) refuse("it was not closed cleanly: run qemu-img check -r all on it");
  const known = INCOMPATIBLE.compressionType | INCOMPATIBLE.extendedL2;
  if ((features & ~known) !== 0n) refuse(`it needs unknown features (0x${features.toString(16)})`);
  const headerBytes = version === 3 ? head.readUInt32BE(100) : 72;
  if (headerBytes < 72 || headerBytes % 8 !== 0 || headerBytes > 2 ** clusterBits) refuse(`header length ${headerBytes} is out of range`);
  refuseExtensions(head.subarray(0, 2 ** clusterBits), headerBytes, refuse);
  const virtualBytes = head.readBigUInt64BE(24);
  if (virtualBytes === 0n || virtualBytes > BigInt(MAX_VIRTUAL_BYTES)) refuse(`virtual size ${virtualBytes} is out of range`);
  const extendedL2 = (features & INCOMPATIBLE.extendedL2) !== 0n;
  const perL1 = 2n ** BigInt(clusterBits) * (2n ** BigInt(clusterBits) / (extendedL2 ? 16n : 8n));
  const l1Entries = head.readUInt32BE(36);
  if (BigInt(l1Entries) * perL1 < virtualBytes || l1Entries > 2 ** 22) refuse("its L1 table does not fit its size");
  const l1Offset = head.readBigUInt64BE(40);
  if (l1Offset % 2n ** BigInt(clusterBits) !== 0n || l1Offset > 2n ** 52n) refuse("its L1 table is not aligned");
  return { version, virtualBytes: Number(virtualBytes), clusterBits, l1Entries, l1Offset: Number(l1Offset), extendedL2 };
}

function refuseExtensions(area: Buffer, start: number, refuse: (why: string) => never): void {
  let offset = start;
  while (offset + 8 <= area.length) {
    const type = area.readUInt32BE(offset);
    const length = area.readUInt32BE(offset + 4);
    if (type === EXTENSION_END) return;
    if (type === EXTENSION_DATA_FILE) refuse("it names an external data file");
    if (type === EXTENSION_CRYPTO) refuse("it is encrypted");
    if (type === EXTENSION_BACKING_FORMAT) refuse("it names the format of a backing file");
    if (length > area.length) refuse("a header extension is too long");
    offset += 8 + Math.ceil(length / 8) * 8;
  }
}

/**
 * The furthest byte of the file that an L1 or L2 entry needs. Bits 9 to 55 of an entry are the offset; a compressed
 * cluster (bit 62) packs offset and number of 512-byte sectors by the cluster size.
 */
export function furthestByteOfEntry(entry: bigint, header: Qcow2Header, level: "l1" | "l2"): number {
  if (level === "l2" && (entry & (1n << 62n)) !== 0n) {
    const offsetBits = BigInt(62 - (header.clusterBits - 8));
    const offset = entry & ((1n << offsetBits) - 1n);
    const sectors = (entry >> offsetBits) & ((1n << BigInt(header.clusterBits - 8)) - 1n);
    // The last sector may lie past the end: only the bytes of the stream need be there, at least one.
    return Number((offset & ~511n) + sectors * 512n + 1n);
  }
  const offset = Number(entry & 0x00ff_ffff_ffff_fe00n);
  if (offset === 0) return 0;
  return offset + (level === "l1" ? 2 ** header.clusterBits : 1);
}

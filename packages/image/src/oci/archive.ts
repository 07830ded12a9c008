/**
 * The table of contents of an uncompressed tar: which file lies where. Nothing is extracted; blobs are read in place.
 * Only what an OCI archive needs: plain files with ustar, GNU or PAX names (POSIX.1-2024, pax).
 */
import type { FileHandle } from "node:fs/promises";
import { PlatformError } from "@fluxvm/core";

export interface ArchiveFile {
  readonly offset: number;
  readonly size: number;
}

const BLOCK = 512;
const MAX_ENTRIES = 100_000;
const MAX_EXTENDED_BYTES = 1 << 20;

interface Header {
  readonly name: string;
  readonly type: string;
  readonly size: number;
}

/** Later entries of a name win. @throws PlatformError `IMAGE_MALFORMED`, `IMAGE_TRUNCATED` */
export async function openArchive(handle: FileHandle, name: string): Promise<ReadonlyMap<string, ArchiveFile>> {
  const stat = await handle.stat();
  if (!stat.isFile()) throw new PlatformError("IMAGE_SOURCE_INVALID", `${JSON.stringify(name)} is no file`);
  const files = new Map<string, ArchiveFile>();
  let position = 0;
  let longName: string | undefined;
  let longSize: number | undefined;
  for (let count = 0; position + BLOCK <= stat.size; count += 1) {
    if (count > MAX_ENTRIES) throw malformed(name, `more than ${MAX_ENTRIES} entries`);
    const header = parseHeader(await readAt(handle, position, BLOCK), name);
    if (header === undefined) return files;
    const offset = position + BLOCK;
    const size = header.type === "x" || longSize === undefined ? header.size : longSize;
    if (offset + size > stat.size)
      throw new PlatformError("IMAGE_TRUNCATED", `The archive ${JSON.stringify(name)} ends within ${JSON.stringify(header.name)}`);
    position = offset + Math.ceil(size / BLOCK) * BLOCK;
    if (header.type === "x" || header.type === "L") {
      if (size > MAX_EXTENDED_BYTES) throw malformed(name, "an extended header is too long");
      const text = await readAt(handle, offset, size);
      if (header.type === "L") longName = untilNul(text);
      else ({ path: longName = longName, size: longSize } = parsePax(text, name));
      continue;
    }
    if (header.type === "0") files.set((longName ?? header.name).replace(/^(\.\/)+/, ""), { offset, size });
    longName = undefined;
    longSize = undefined;
  }
  if (files.size === 0) throw malformed(name, "it holds no file");
  return files;
}

async function readAt(handle: FileHandle, position: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  await handle.read(buffer, 0, length, position);
  return buffer;
}

/** `undefined` for the block of zeros at the end. */
function parseHeader(block: Buffer, archive: string): Header | undefined {
  if (block.every((byte) => byte === 0)) return undefined;
  let sum = 0;
  for (const [index, byte] of block.entries()) sum += index >= 148 && index < 156 ? 32 : byte;
  if (sum !== octal(block.subarray(148, 156)))
    throw malformed(archive, "a header's checksum is wrong, or it is compressed: unpack it first");
  const isUstar = block.toString("latin1", 257, 262) === "ustar";
  const prefix = isUstar ? untilNul(block.subarray(345, 500)) : "";
  const name = untilNul(block.subarray(0, 100));
  const size = octal(block.subarray(124, 136));
  const type = String.fromCharCode(block[156] ?? 0);
  if (!Number.isSafeInteger(size)) throw malformed(archive, `the size of ${JSON.stringify(name)} is no size`);
  const hasData = !"123456".includes(type);
  return { name: prefix === "" ? name : `${prefix}/${name}`, type: type === "\0" || type === "7" ? "0" : type, size: hasData ? size : 0 };
}

function octal(field: Buffer): number {
  const [first = 0] = field;
  if ((first & 0x80) !== 0) return Number(BigInt(`0x${field.toString("hex")}`) & ((1n << BigInt(field.length * 8 - 1)) - 1n));
  const text = untilNul(field).trim();
  return /^[0-7]+$/.test(text) ? Number.parseInt(text, 8) : Number.NaN;
}

function parsePax(bytes: Buffer, archive: string): { path?: string; size?: number } {
  const found: { path?: string; size?: number } = {};
  let offset = 0;
  while (offset < bytes.length) {
    const space = bytes.indexOf(32, offset);
    const length = space === -1 ? Number.NaN : Number(bytes.toString("latin1", offset, space));
    if (!Number.isSafeInteger(length) || length <= space - offset + 2 || offset + length > bytes.length)
      throw malformed(archive, "an extended header is wrong");
    const record = bytes.toString("utf8", space + 1, offset + length - 1);
    const [key, value] = [record.slice(0, record.indexOf("=")), record.slice(record.indexOf("=") + 1)];
    if (key === "path") found.path = value;
    if (key === "size" && /^\d{1,15}$/.test(value)) found.size = Number(value);
    offset += length;
  }
  return found;
}

function untilNul(bytes: Buffer): string {
  const end = bytes.indexOf(0);
  return bytes.toString("utf8", 0, end === -1 ? bytes.length : end);
}

function malformed(name: string, why: string): PlatformError {
  return new PlatformError("IMAGE_MALFORMED", `Cannot read the archive ${JSON.stringify(name)}: ${why}`);
}

/**
 * Finds the uncompressed kernel inside a bzImage. Offsets are those of the setup header (Linux Documentation/arch/x86/
 * boot.rst, "The Real-Mode Kernel Header"); the payload ends with the uncompressed size, but for gzip, which has it
 * itself.
 */
import { PlatformError } from "@fluxvm/core";
import { decompress } from "./decompress.ts";

const SECTOR = 512;
const SETUP_SECTS = 0x1f1;
const HEADER_MAGIC_OFFSET = 0x202;
const HEADER_MAGIC = "HdrS";
const VERSION = 0x206;
const KERNEL_VERSION = 0x20e;
const PAYLOAD_OFFSET = 0x248;
const PAYLOAD_LENGTH = 0x24c;
/** Payload fields exist from protocol 2.08 on. */
const FIRST_WITH_PAYLOAD = 0x0208;

export function isBzImage(file: Buffer): boolean {
  return file.length > PAYLOAD_LENGTH + 4 && file.toString("latin1", HEADER_MAGIC_OFFSET, HEADER_MAGIC_OFFSET + 4) === HEADER_MAGIC;
}

export interface ExtractedKernel {
  readonly elf: Buffer;
  /** For example `6.1.0-40-cloud-amd64`. */
  readonly release: string | undefined;
}

/** @throws PlatformError `KERNEL_INVALID` */
export async function extractKernel(file: Buffer, name: string, signal: AbortSignal): Promise<ExtractedKernel> {
  const refuse = (why: string): never => {
    throw new PlatformError("KERNEL_INVALID", `Cannot use kernel ${JSON.stringify(name)}: ${why}`);
  };
  if (!isBzImage(file)) return refuse("it is neither a bzImage nor an ELF file");
  const version = file.readUInt16LE(VERSION);
  if (version < FIRST_WITH_PAYLOAD) return refuse(`its boot protocol ${version >> 8}.${version & 255} is too old`);
  const sectors = file[SETUP_SECTS] ?? 0;
  const start = ((sectors === 0 ? 4 : sectors) + 1) * SECTOR + file.readUInt32LE(PAYLOAD_OFFSET);
  const length = file.readUInt32LE(PAYLOAD_LENGTH);
  if (length < 8 || start + length > file.length) return refuse("it is cut off: its payload lies outside of the file");
  const payload = file.subarray(start, start + length);
  const isGzip = payload.readUInt16BE(0) === 0x1f8b;
  const elf = await decompress(isGzip ? payload : payload.subarray(0, -4), `the kernel ${JSON.stringify(name)}`, signal);
  const expected = payload.readUInt32LE(length - 4);
  if (!isGzip && elf.length !== expected) return refuse(`it unpacks to ${elf.length} bytes instead of ${expected}`);
  return { elf, release: readRelease(file) };
}

function readRelease(file: Buffer): string | undefined {
  const pointer = file.readUInt16LE(KERNEL_VERSION);
  if (pointer === 0) return undefined;
  const text = file.toString("latin1", pointer + 0x200, pointer + 0x200 + 256);
  const release = /^[\x21-\x7e]+/.exec(text)?.[0];
  return release !== undefined && /^[A-Za-z0-9._+~-]{1,128}$/.test(release) ? release : undefined;
}

/**
 * A small ISO 9660 writer: a flat volume of a few files, readable as plain ISO 9660, Joliet and Rock Ridge, which is
 * what a NoCloud seed needs. Formats: ECMA-119; Joliet Specification (1995); SUSP 1.12 and RRIP 1.12 (IEEE P1281/P1282).
 *
 *   sector 0–15  zero           18  set terminator            then  primary root directory
 *          16    primary        19  path tables L, M                Joliet root directory
 *          17    Joliet         21  Joliet path tables L, M         file contents, one after the other
 *
 * It does no directories, no boot records and no file above `MAX_FILE_BYTES`: a seed is small, so it is built in memory.
 * The same input gives the same bytes.
 */
import { assert, invalidField } from "@fluxvm/core";
import { encodeDirectoryRecord, type DirectoryRecord } from "./iso9660-record.ts";

export interface IsoFile {
  /** As Linux shall show it: 1 to 64 of A-Z a-z 0-9 . _ - */
  readonly name: string;
  readonly data: Uint8Array;
}

export interface IsoVolume {
  /** 1 to 16 of A-Z a-z 0-9 . _ - */
  readonly volumeId: string;
  readonly files: readonly IsoFile[];
  /** Recorded as the time of everything; default the Unix epoch, so that builds repeat exactly. */
  readonly modifiedAt?: Date;
}

export const SECTOR_BYTES = 2048;
const MAX_FILES = 64;
const MAX_FILE_BYTES = 256 * 1024 * 1024;
const FIRST_DIRECTORY_SECTOR = 23;

interface Placed {
  readonly file: IsoFile;
  readonly isoName: string;
  readonly sector: number;
}

interface Layout {
  readonly volume: IsoVolume;
  readonly modifiedAt: Date;
  readonly files: readonly Placed[];
  readonly primary: { readonly sector: number; readonly bytes: Buffer };
  readonly joliet: { readonly sector: number; readonly bytes: Buffer };
  readonly sectors: number;
}

/** The bytes of a volume. @throws PlatformError `REQUEST_INVALID` for names, counts and sizes outside the limits above */
export function buildIso9660(volume: IsoVolume): Uint8Array {
  checkVolume(volume);
  const layout = planLayout(volume);
  const image = Buffer.alloc(layout.sectors * SECTOR_BYTES);
  const at = (sector: number): Buffer => image.subarray(sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES);
  writeDescriptor(at(16), layout, "primary");
  writeDescriptor(at(17), layout, "joliet");
  writeTerminator(at(18));
  writePathTable(at(19), { sector: layout.primary.sector, order: "little" });
  writePathTable(at(20), { sector: layout.primary.sector, order: "big" });
  writePathTable(at(21), { sector: layout.joliet.sector, order: "little" });
  writePathTable(at(22), { sector: layout.joliet.sector, order: "big" });
  layout.primary.bytes.copy(image, layout.primary.sector * SECTOR_BYTES);
  layout.joliet.bytes.copy(image, layout.joliet.sector * SECTOR_BYTES);
  for (const placed of layout.files) image.set(placed.file.data, placed.sector * SECTOR_BYTES);
  return image;
}

function checkVolume(volume: IsoVolume): void {
  if (!/^[A-Za-z0-9._-]{1,16}$/.test(volume.volumeId)) throw invalidField("volumeId", "1 to 16 of A-Z a-z 0-9 . _ -");
  if (volume.files.length > MAX_FILES) throw invalidField("files", `at most ${MAX_FILES} files`);
  const seen = new Set<string>();
  for (const { name, data } of volume.files) {
    if (!/^[A-Za-z0-9._-]{1,64}$/.test(name) || name === "." || name === "..")
      throw invalidField("files", `${JSON.stringify(name)} is no name`);
    if (data.byteLength > MAX_FILE_BYTES) throw invalidField("files", `${name} is larger than ${MAX_FILE_BYTES} bytes`);
    if (seen.has(name)) throw invalidField("files", `${name} is there twice`);
    seen.add(name);
  }
}

function planLayout(volume: IsoVolume): Layout {
  const modifiedAt = volume.modifiedAt ?? new Date(0);
  const isoNames = planIsoNames(volume.files.map((file) => file.name));
  // Directory sizes do not depend on where contents lie, so a first pass with sector 0 measures them.
  const unplaced = volume.files.map((file, i) => ({ file, isoName: isoNames[i] ?? "", sector: 0 }));
  const sectorsOf = (bytes: number): number => Math.ceil(bytes / SECTOR_BYTES);
  const primarySectors = sectorsOf(primaryDirectory(unplaced, { sector: 0, bytes: 0, modifiedAt }).length);
  const jolietSectors = sectorsOf(jolietDirectory(unplaced, { sector: 0, bytes: 0, modifiedAt }).length);
  const primarySector = FIRST_DIRECTORY_SECTOR;
  const jolietSector = primarySector + primarySectors;
  let next = jolietSector + jolietSectors;
  const files = unplaced.map(({ file, isoName }) => {
    const sector = next;
    next += sectorsOf(file.data.byteLength);
    return { file, isoName, sector };
  });
  const primaryBytes = primaryDirectory(files, { sector: primarySector, bytes: primarySectors * SECTOR_BYTES, modifiedAt });
  const jolietBytes = jolietDirectory(files, { sector: jolietSector, bytes: jolietSectors * SECTOR_BYTES, modifiedAt });
  return {
    volume,
    modifiedAt,
    files,
    primary: { sector: primarySector, bytes: primaryBytes },
    joliet: { sector: jolietSector, bytes: jolietBytes },
    sectors: next,
  };
}

/** Names of interchange level 2: upper case, one dot, at most 31 characters with `;1`, each unlike the others. */
export function planIsoNames(names: readonly string[]): readonly string[] {
  const taken = new Set<string>();
  return names.map((name) => {
    const dot = name.lastIndexOf(".");
    const clean = (text: string): string => text.toUpperCase().replaceAll(/[^A-Z0-9_]/g, "_");
    const extension = dot > 0 ? clean(name.slice(dot + 1)).slice(0, 8) : "";
    const stem = clean(dot > 0 ? name.slice(0, dot) : name);
    for (let n = 0; ; n += 1) {
      const suffix = n === 0 ? "" : `_${n}`;
      const candidate = `${stem.slice(0, 20 - suffix.length)}${suffix}.${extension};1`;
      if (taken.has(candidate)) continue;
      taken.add(candidate);
      return candidate;
    }
  });
}

interface Root {
  readonly sector: number;
  readonly bytes: number;
  readonly modifiedAt: Date;
}

function primaryDirectory(files: readonly Placed[], root: Root): Buffer {
  const self = { ...root, isDirectory: true };
  const sorted = files.toSorted((a, b) => (a.isoName < b.isoName ? -1 : 1));
  return packRecords([
    { ...self, identifier: Buffer.from([0]), rockRidge: { kind: "root" } },
    { ...self, identifier: Buffer.from([1]), rockRidge: { kind: "directory" } },
    ...sorted.map((placed) => ({
      ...fileRecord(placed, root),
      identifier: Buffer.from(placed.isoName, "latin1"),
      rockRidge: { kind: "file" as const, name: placed.file.name },
    })),
  ]);
}

function jolietDirectory(files: readonly Placed[], root: Root): Buffer {
  const self = { ...root, isDirectory: true };
  const sorted = files.toSorted((a, b) => (a.file.name < b.file.name ? -1 : 1));
  return packRecords([
    { ...self, identifier: Buffer.from([0]) },
    { ...self, identifier: Buffer.from([1]) },
    ...sorted.map((placed) => ({ ...fileRecord(placed, root), identifier: ucs2(`${placed.file.name};1`) })),
  ]);
}

function fileRecord(placed: Placed, root: Root): Omit<DirectoryRecord, "identifier"> {
  return { sector: placed.sector, bytes: placed.file.data.byteLength, modifiedAt: root.modifiedAt, isDirectory: false };
}

/** Records one after the other, none across the end of a sector (ECMA-119 6.8.1.1). */
function packRecords(records: readonly DirectoryRecord[]): Buffer {
  const parts: Buffer[] = [];
  let used = 0;
  for (const record of records) {
    const bytes = encodeDirectoryRecord(record);
    const room = SECTOR_BYTES - (used % SECTOR_BYTES);
    if (bytes.length > room) {
      parts.push(Buffer.alloc(room));
      used += room;
    }
    parts.push(bytes);
    used += bytes.length;
  }
  return Buffer.concat(parts);
}

/** ECMA-119 8.4 (primary) and 8.5 (supplementary, here Joliet). */
function writeDescriptor(sector: Buffer, layout: Layout, kind: "primary" | "joliet"): void {
  const isPrimary = kind === "primary";
  const root = isPrimary ? layout.primary : layout.joliet;
  const text = (offset: number, length: number, value: string): void => {
    const bytes = isPrimary ? Buffer.from(value, "latin1") : ucs2(value);
    const blank = isPrimary ? Buffer.from(" ") : Buffer.from([0, 0x20]);
    sector.fill(blank, offset, offset + length - (isPrimary ? 0 : length % 2));
    bytes.copy(sector, offset, 0, length);
  };
  sector.writeUInt8(isPrimary ? 1 : 2, 0);
  sector.write("CD001\u0001", 1, "latin1");
  text(8, 32, "");
  text(40, 32, layout.volume.volumeId);
  writeBoth32(sector, 80, layout.sectors);
  if (!isPrimary) sector.write("%/E", 88, "latin1"); // UCS-2 level 3
  writeBoth16(sector, 120, 1);
  writeBoth16(sector, 124, 1);
  writeBoth16(sector, 128, SECTOR_BYTES);
  writeBoth32(sector, 132, 10); // size of a path table of the root alone
  sector.writeUInt32LE(isPrimary ? 19 : 21, 140);
  sector.writeUInt32BE(isPrimary ? 20 : 22, 148);
  const rootBytes = Math.ceil(root.bytes.length / SECTOR_BYTES) * SECTOR_BYTES;
  const record = { identifier: Buffer.from([0]), sector: root.sector, bytes: rootBytes, modifiedAt: layout.modifiedAt, isDirectory: true };
  encodeDirectoryRecord(record).copy(sector, 156);
  for (const offset of [190, 318, 446, 574]) text(offset, 128, "");
  for (const offset of [702, 739, 776]) text(offset, 37, "");
  const created = longDate(layout.modifiedAt);
  for (const offset of [813, 830]) created.copy(sector, offset);
  for (const offset of [847, 864]) sector.write("0".repeat(16), offset, "latin1"); // no expiry, effective at once
  sector.writeUInt8(1, 881);
}

function writeTerminator(sector: Buffer): void {
  sector.writeUInt8(255, 0);
  sector.write("CD001\u0001", 1, "latin1");
}

/** ECMA-119 9.4: the one record of the root. */
function writePathTable(sector: Buffer, table: { readonly sector: number; readonly order: "little" | "big" }): void {
  sector.writeUInt8(1, 0);
  if (table.order === "little") {
    sector.writeUInt32LE(table.sector, 2);
    sector.writeUInt16LE(1, 6);
  } else {
    sector.writeUInt32BE(table.sector, 2);
    sector.writeUInt16BE(1, 6);
  }
}

/** ECMA-119 8.4.26.1: sixteen digits and the offset from Greenwich. */
function longDate(date: Date): Buffer {
  const digits = date.toISOString().replaceAll(/\D/g, "").slice(0, 16);
  assert(digits.length === 16, "a year of four digits");
  return Buffer.concat([Buffer.from(digits, "latin1"), Buffer.from([0])]);
}

function ucs2(text: string): Buffer {
  return Buffer.from(text, "utf16le").swap16();
}

function writeBoth16(target: Buffer, offset: number, value: number): void {
  target.writeUInt16LE(value, offset);
  target.writeUInt16BE(value, offset + 2);
}

function writeBoth32(target: Buffer, offset: number, value: number): void {
  target.writeUInt32LE(value, offset);
  target.writeUInt32BE(value, offset + 4);
}

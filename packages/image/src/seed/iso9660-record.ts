/** Directory records of ISO 9660 (ECMA-119 9.1) with their Rock Ridge fields (SUSP 5, RRIP 4.1). */

export interface DirectoryRecord {
  readonly identifier: Buffer;
  readonly sector: number;
  readonly bytes: number;
  readonly modifiedAt: Date;
  readonly isDirectory: boolean;
  readonly rockRidge?: { readonly kind: "root" } | { readonly kind: "directory" } | { readonly kind: "file"; readonly name: string };
}

const FIXED_BYTES = 33;
/** For root alone: user data may hold secrets. */
const DIRECTORY_MODE = 0o040500;
const FILE_MODE = 0o100400;

export function encodeDirectoryRecord(record: DirectoryRecord): Buffer {
  const { identifier } = record;
  const padding = identifier.length % 2 === 0 ? 1 : 0;
  const system = record.rockRidge === undefined ? Buffer.alloc(0) : encodeSystemUse(record);
  const length = FIXED_BYTES + identifier.length + padding + system.length;
  const bytes = Buffer.alloc(length + (length % 2));
  bytes.writeUInt8(bytes.length, 0);
  bytes.writeUInt32LE(record.sector, 2);
  bytes.writeUInt32BE(record.sector, 6);
  bytes.writeUInt32LE(record.bytes, 10);
  bytes.writeUInt32BE(record.bytes, 14);
  shortDate(record.modifiedAt).copy(bytes, 18);
  bytes.writeUInt8(record.isDirectory ? 2 : 0, 25);
  bytes.writeUInt16LE(1, 28);
  bytes.writeUInt16BE(1, 30);
  bytes.writeUInt8(identifier.length, 32);
  identifier.copy(bytes, FIXED_BYTES);
  system.copy(bytes, FIXED_BYTES + identifier.length + padding);
  return bytes;
}

function encodeSystemUse(record: DirectoryRecord): Buffer {
  const fields = record.rockRidge;
  const posix = posixAttributes(record);
  if (fields === undefined || fields.kind === "directory") return posix;
  if (fields.kind === "root") return Buffer.concat([field("SP", Buffer.from([0xbe, 0xef, 0])), posix, extensionReference()]);
  return Buffer.concat([posix, field("NM", Buffer.from(`\0${fields.name}`, "latin1"))]);
}

/** `PX`: mode, links, uid and gid, without the serial number, as RRIP 1.09 and Linux have it. */
function posixAttributes(record: DirectoryRecord): Buffer {
  const data = Buffer.alloc(32);
  const values = [record.isDirectory ? DIRECTORY_MODE : FILE_MODE, record.isDirectory ? 2 : 1, 0, 0];
  for (const [i, value] of values.entries()) {
    data.writeUInt32LE(value, i * 8);
    data.writeUInt32BE(value, i * 8 + 4);
  }
  return field("PX", data);
}

/** `ER`: says that the fields are Rock Ridge. Descriptor and source may be empty; the identifier may not. */
function extensionReference(): Buffer {
  const identifier = "RRIP_1991A";
  return field("ER", Buffer.concat([Buffer.from([identifier.length, 0, 0, 1]), Buffer.from(identifier, "latin1")]));
}

function field(signature: string, data: Buffer): Buffer {
  return Buffer.concat([Buffer.from(signature, "latin1"), Buffer.from([data.length + 4, 1]), data]);
}

/** ECMA-119 9.1.5. */
function shortDate(date: Date): Buffer {
  return Buffer.from([
    date.getUTCFullYear() - 1900,
    date.getUTCMonth() + 1,
    date.getUTCDate(),
    date.getUTCHours(),
    date.getUTCMinutes(),
    date.getUTCSeconds(),
    0,
  ]);
}

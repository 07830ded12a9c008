/** Makes tar archives for tests, honest and hostile: every field is what the test says, whether or not it is sane. */

export interface TarItem {
  readonly name: string;
  /** Type flag: 0 file, 1 hard link, 2 symbolic link, 3 and 4 devices, 5 directory, 6 fifo. Default 0. */
  readonly type?: string;
  readonly content?: string | Uint8Array;
  readonly link?: string;
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly mtime?: number;
  /** The size field, where it is not the content's. */
  readonly size?: number;
  /** PAX records before the entry. */
  readonly pax?: Readonly<Record<string, string | Uint8Array>>;
  readonly badChecksum?: boolean;
  readonly devMajor?: number;
  readonly devMinor?: number;
}

const BLOCK = 512;

export function writeTar(items: readonly TarItem[], options: { readonly end?: boolean } = {}): Buffer {
  const parts = items.flatMap((item) => [...(item.pax === undefined ? [] : paxHeader(item.pax)), ...writeItem(item)]);
  return Buffer.concat([...parts, Buffer.alloc(options.end === false ? 0 : 2 * BLOCK)]);
}

function writeItem(item: TarItem): Buffer[] {
  const content = Buffer.from(item.content ?? "");
  const name = Buffer.from(item.name);
  const long = name.length > 100 ? gnuLong("L", name) : [];
  const longLink = (item.link?.length ?? 0) > 100 ? gnuLong("K", Buffer.from(item.link ?? "")) : [];
  const header = Buffer.alloc(BLOCK);
  name.copy(header, 0, 0, 100);
  octal(header, 100, 8, item.mode ?? (item.type === "5" ? 0o755 : 0o644));
  octal(header, 108, 8, item.uid ?? 0);
  octal(header, 116, 8, item.gid ?? 0);
  octal(header, 124, 12, item.size ?? content.length);
  octal(header, 136, 12, item.mtime ?? 1_600_000_000);
  header.write(item.type ?? "0", 156, "latin1");
  header.write((item.link ?? "").slice(0, 100), 157, "utf8");
  header.write("ustar\u000000", 257, "latin1");
  octal(header, 329, 8, item.devMajor ?? 0);
  octal(header, 337, 8, item.devMinor ?? 0);
  header.fill(32, 148, 156);
  const sum = header.reduce((total, byte) => total + byte, 0) + (item.badChecksum === true ? 1 : 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return [...long, ...longLink, header, content, pad(content.length)];
}

function gnuLong(type: string, text: Buffer): Buffer[] {
  return writeItem({ name: "././@LongLink", type, content: Buffer.concat([text, Buffer.alloc(1)]) });
}

function paxHeader(records: Readonly<Record<string, string | Uint8Array>>): Buffer[] {
  const content = Buffer.concat(Object.entries(records).map(([key, value]) => paxRecord(key, Buffer.from(value))));
  return writeItem({ name: "PaxHeaders/x", type: "x", content });
}

function paxRecord(key: string, value: Buffer): Buffer {
  const rest = Buffer.concat([Buffer.from(` ${key}=`), value, Buffer.from("\n")]);
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return Buffer.concat([Buffer.from(String(length)), rest]);
}

function octal(header: Buffer, offset: number, width: number, value: number): void {
  const text = value.toString(8).padStart(width - 1, "0");
  if (text.length < width) {
    header.write(`${text}\0`, offset, "latin1");
    return;
  }
  // Base 256, as GNU tar writes what octal cannot hold.
  const bytes = Buffer.alloc(width);
  bytes.writeBigUInt64BE(BigInt(value), width - 8);
  bytes[0] = 0x80;
  bytes.copy(header, offset);
}

function pad(length: number): Buffer {
  return Buffer.alloc((BLOCK - (length % BLOCK)) % BLOCK);
}

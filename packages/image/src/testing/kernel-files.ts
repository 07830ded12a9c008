/** Synthetic kernels and modules for tests: just enough of each format. */

export interface TestElfOptions {
  readonly note?: { readonly name: string; readonly type: number } | undefined;
  readonly machine?: number;
  readonly type?: number;
  readonly noteAlign?: number;
}

/** A 64-bit ELF with one note segment. */
export function makeElf(options: TestElfOptions = {}): Buffer {
  const note = options.note === undefined ? { name: "Xen\0", type: 18 } : options.note;
  const name = Buffer.from(note.name, "latin1");
  const notes = Buffer.alloc(12 + Math.ceil(name.length / 4) * 4 + 8);
  notes.writeUInt32LE(name.length, 0);
  notes.writeUInt32LE(8, 4);
  notes.writeUInt32LE(note.type, 8);
  name.copy(notes, 12);
  const file = Buffer.alloc(64 + 56 + notes.length);
  writeElfHeader(file, { type: options.type ?? 2, machine: options.machine ?? 62 });
  file.writeBigUInt64LE(64n, 32);
  file.writeUInt16LE(56, 54);
  file.writeUInt16LE(1, 56);
  file.writeUInt32LE(4, 64);
  file.writeBigUInt64LE(120n, 72);
  file.writeBigUInt64LE(BigInt(notes.length), 96);
  file.writeBigUInt64LE(BigInt(options.noteAlign ?? 4), 112);
  notes.copy(file, 120);
  return file;
}

/** A kernel module with a `.modinfo` section. */
export function makeModule(info: Readonly<Record<string, string>>): Buffer {
  const modinfo = Buffer.from(
    Object.entries(info)
      .map(([key, value]) => `${key}=${value}\0`)
      .join(""),
  );
  const names = Buffer.from("\0.modinfo\0.shstrtab\0");
  const table = 64 + modinfo.length + names.length;
  const file = Buffer.alloc(table + 3 * 64);
  writeElfHeader(file, { type: 1, machine: 62 });
  file.writeBigUInt64LE(BigInt(table), 40);
  file.writeUInt16LE(64, 58);
  file.writeUInt16LE(3, 60);
  file.writeUInt16LE(2, 62);
  modinfo.copy(file, 64);
  names.copy(file, 64 + modinfo.length);
  const section = (index: number, nameAt: number, offset: number, size: number): void => {
    file.writeUInt32LE(nameAt, table + index * 64);
    file.writeBigUInt64LE(BigInt(offset), table + index * 64 + 24);
    file.writeBigUInt64LE(BigInt(size), table + index * 64 + 32);
  };
  section(1, 1, 64, modinfo.length);
  section(2, 10, 64 + modinfo.length, names.length);
  return file;
}

function writeElfHeader(file: Buffer, { type, machine }: { readonly type: number; readonly machine: number }): void {
  Buffer.from([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]).copy(file);
  file.writeUInt16LE(type, 16);
  file.writeUInt16LE(machine, 18);
}

export interface TestBzImageOptions {
  readonly payload: Buffer;
  /** Appended to the payload, as the kernel's build does for all but gzip. */
  readonly uncompressedBytes?: number;
  readonly version?: string;
  readonly protocol?: number;
}

export function makeBzImage({ payload, uncompressedBytes, version, protocol }: TestBzImageOptions): Buffer {
  const setup = Buffer.alloc(5 * 512);
  setup[0x1f1] = 4;
  setup.write("HdrS", 0x202, "latin1");
  setup.writeUInt16LE(protocol ?? 0x020f, 0x206);
  if (version !== undefined) {
    setup.writeUInt16LE(0x600 - 0x200, 0x20e);
    setup.write(`${version}\0`, 0x600, "latin1");
  }
  const tail = uncompressedBytes === undefined ? Buffer.alloc(0) : Buffer.alloc(4);
  if (uncompressedBytes !== undefined) tail.writeUInt32LE(uncompressedBytes);
  const before = Buffer.alloc(100, 0x90);
  setup.writeUInt32LE(before.length, 0x248);
  setup.writeUInt32LE(payload.length + tail.length, 0x24c);
  return Buffer.concat([setup, before, payload, tail, Buffer.alloc(64)]);
}

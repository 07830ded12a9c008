/** Looks into ELF files: is it a kernel that a VMM can enter (PVH), and what a module says of itself. */

const ELF_MAGIC = 0x464c_457f;
const CLASS_64 = 2;
const LITTLE_ENDIAN = 1;
const MACHINE_X86_64 = 62;
const TYPE_EXECUTABLE = 2;
const PT_NOTE = 4;
/** Entry point for PVH boot (Xen public headers, elfnote.h; Linux Documentation/arch/x86/boot.rst). */
const XEN_ELFNOTE_PHYS32_ENTRY = 18;
const MAX_HEADERS = 4096;

export function isElf(file: Buffer): boolean {
  return file.length >= 64 && file.readUInt32LE(0) === ELF_MAGIC;
}

/** Why the file is no x86-64 kernel with a PVH entry; `undefined` when it is one. */
export function explainNoPvh(file: Buffer): string | undefined {
  if (!isElf(file)) return "it is no ELF file";
  if (file[4] !== CLASS_64 || file[5] !== LITTLE_ENDIAN || file.readUInt16LE(18) !== MACHINE_X86_64) return "it is no 64-bit x86 ELF file";
  if (file.readUInt16LE(16) !== TYPE_EXECUTABLE) return "it is no executable ELF file";
  const table = programHeaders(file);
  if (table === undefined) return "its program headers lie outside of the file";
  for (const header of table) {
    if (header.offset + header.fileBytes > file.length) return "it is cut off: a segment lies outside of the file";
  }
  const found = table.some(
    (header) => header.type === PT_NOTE && hasPvhNote(file.subarray(header.offset, header.offset + header.fileBytes), header.align),
  );
  return found ? undefined : "it has no PVH entry point (Xen note 18): build it with CONFIG_PVH";
}

interface ProgramHeader {
  readonly type: number;
  readonly offset: number;
  readonly fileBytes: number;
  readonly align: number;
}

function programHeaders(file: Buffer): ProgramHeader[] | undefined {
  const start = Number(file.readBigUInt64LE(32));
  const size = file.readUInt16LE(54);
  const count = file.readUInt16LE(56);
  if (size < 56 || count > MAX_HEADERS || start + size * count > file.length) return undefined;
  return Array.from({ length: count }, (_, index) => {
    const at = start + index * size;
    return {
      type: file.readUInt32LE(at),
      offset: Number(file.readBigUInt64LE(at + 8)),
      fileBytes: Number(file.readBigUInt64LE(at + 32)),
      align: Number(file.readBigUInt64LE(at + 48)),
    };
  });
}

function hasPvhNote(notes: Buffer, align: number): boolean {
  const unit = align === 8 ? 8 : 4;
  const padded = (size: number): number => Math.ceil(size / unit) * unit;
  let offset = 0;
  while (offset + 12 <= notes.length) {
    const nameBytes = notes.readUInt32LE(offset);
    const descriptionBytes = notes.readUInt32LE(offset + 4);
    const type = notes.readUInt32LE(offset + 8);
    const name = notes.toString("latin1", offset + 12, offset + 12 + nameBytes);
    if (type === XEN_ELFNOTE_PHYS32_ENTRY && name === "Xen\0" && descriptionBytes >= 4) return true;
    offset += 12 + padded(nameBytes) + padded(descriptionBytes);
  }
  return false;
}

/** What a module needs: `depends` and `softdep` of its `.modinfo` section. Empty for what is no module. */
export function readModuleNeeds(file: Buffer): { readonly depends: string[]; readonly soft: string[] } {
  const info = sectionNamed(file, ".modinfo");
  const depends: string[] = [];
  const soft: string[] = [];
  for (const item of info?.toString("latin1").split("\0") ?? []) {
    if (item.startsWith("depends="))
      depends.push(
        ...item
          .slice("depends=".length)
          .split(",")
          .filter((name) => name !== ""),
      );
    if (item.startsWith("softdep=")) soft.push(...preDependencies(item.slice("softdep=".length)));
  }
  return { depends, soft };
}

/** `pre: a b post: c` names a and b as wanted before. */
function preDependencies(text: string): string[] {
  const names: string[] = [];
  let before = false;
  for (const word of text.split(/\s+/)) {
    if (word.endsWith(":")) before = word === "pre:";
    else if (before && word !== "") names.push(word);
  }
  return names;
}

function sectionNamed(file: Buffer, name: string): Buffer | undefined {
  if (!isElf(file) || file[4] !== CLASS_64) return undefined;
  const start = Number(file.readBigUInt64LE(40));
  const size = file.readUInt16LE(58);
  const count = file.readUInt16LE(60);
  const namesIndex = file.readUInt16LE(62);
  if (size < 64 || count > MAX_HEADERS || namesIndex >= count || start + size * count > file.length) return undefined;
  const section = (index: number): { readonly name: number; readonly bytes: Buffer } => {
    const at = start + index * size;
    const offset = Number(file.readBigUInt64LE(at + 24));
    return { name: file.readUInt32LE(at), bytes: file.subarray(offset, offset + Number(file.readBigUInt64LE(at + 32))) };
  };
  const names = section(namesIndex).bytes;
  for (let index = 0; index < count; index += 1) {
    const candidate = section(index);
    const end = names.indexOf(0, candidate.name);
    if (end !== -1 && names.toString("latin1", candidate.name, end) === name) return candidate.bytes;
  }
  return undefined;
}

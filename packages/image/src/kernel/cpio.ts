/**
 * Writes a cpio archive in the "newc" format, which is what the kernel unpacks an initrd from (Linux
 * Documentation/driver-api/early-userspace/buffer-format.rst). Everything belongs to root and has time zero, so that
 * the same content gives the same bytes.
 */
import { assert } from "@fluxvm/core";

export type CpioEntry =
  | { readonly kind: "directory"; readonly path: string; readonly mode: number }
  | { readonly kind: "file"; readonly path: string; readonly mode: number; readonly content: Uint8Array }
  | { readonly kind: "character-device"; readonly path: string; readonly mode: number; readonly major: number; readonly minor: number };

const TYPE_BITS = { directory: 0o040000, file: 0o100000, "character-device": 0o020000 } as const;
const TRAILER = "TRAILER!!!";

/** Paths are relative; a directory comes before what is in it. */
export function encodeCpio(entries: readonly CpioEntry[]): Buffer {
  const parts: Buffer[] = [];
  let inode = 1;
  const append = (path: string, fields: { mode: number; links: number; content: Uint8Array; device: readonly [number, number] }): void => {
    const name = Buffer.from(`${path}\0`, "utf8");
    const numbers = [inode, fields.mode, 0, 0, fields.links, 0, fields.content.length, 0, 0, ...fields.device, name.length, 0];
    const header = Buffer.from(`070701${numbers.map((number) => number.toString(16).padStart(8, "0")).join("")}`, "latin1");
    parts.push(header, name, padding(header.length + name.length), Buffer.from(fields.content), padding(fields.content.length));
    inode += 1;
  };
  for (const entry of entries) {
    assert(!entry.path.startsWith("/") && !entry.path.includes("\0") && entry.path !== TRAILER, "cpio path");
    append(entry.path, {
      mode: TYPE_BITS[entry.kind] | entry.mode,
      links: entry.kind === "directory" ? 2 : 1,
      content: entry.kind === "file" ? entry.content : Buffer.alloc(0),
      device: entry.kind === "character-device" ? [entry.major, entry.minor] : [0, 0],
    });
  }
  inode = 0;
  append(TRAILER, { mode: 0, links: 1, content: Buffer.alloc(0), device: [0, 0] });
  const archive = Buffer.concat(parts);
  return Buffer.concat([archive, Buffer.alloc(Math.ceil(archive.length / 512) * 512 - archive.length)]);
}

function padding(length: number): Buffer {
  return Buffer.alloc((4 - (length % 4)) % 4);
}

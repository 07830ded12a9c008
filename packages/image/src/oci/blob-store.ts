/**
 * Where the files of an OCI layout are read from: a directory, or a tar of one. Both answer the same questions, and
 * neither can be led to a file outside.
 */
import { createHash, type Hash } from "node:crypto";
import { constants } from "node:fs";
import { open, readlink, realpath, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { PlatformError } from "@fluxvm/core";
import { openArchive, type ArchiveFile } from "./archive.ts";

/** An open file, or a stretch of one. */
export interface StoredFile {
  readonly size: number;
  read(signal: AbortSignal): AsyncIterable<Buffer>;
  close(): Promise<void>;
}

export interface LayoutFiles {
  /** `name` is relative to the layout, for example `index.json`. @throws PlatformError `IMAGE_MALFORMED` when it is missing or leads outside. */
  open(name: string): Promise<StoredFile>;
  close(): Promise<void>;
}

const READ_BYTES = 1 << 20;
const MAX_DOCUMENT_BYTES = 4 << 20;

export async function openLayoutDirectory(path: string): Promise<LayoutFiles> {
  const root = await realpath(path).catch((error: unknown) => {
    throw new PlatformError("IMAGE_SOURCE_UNREACHABLE", `Cannot read the OCI layout ${JSON.stringify(path)}`, { cause: error });
  });
  return { open: async (name) => await openInside(root, name), close: async () => undefined };
}

/** Symbolic links may lead anywhere inside the layout and nowhere else; what was opened is what is judged. */
async function openInside(root: string, name: string): Promise<StoredFile> {
  const missing = (cause: unknown): never => {
    throw new PlatformError("IMAGE_MALFORMED", `The OCI layout has no readable file ${JSON.stringify(name)}`, { cause });
  };
  const resolved = await realpath(join(root, name)).catch(missing);
  refuseOutside(root, resolved, name);
  const handle = await open(resolved, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(missing);
  try {
    // A directory on the way may have been replaced in between.
    refuseOutside(root, await readlink(`/proc/self/fd/${handle.fd}`), name);
    const stat = await handle.stat();
    if (!stat.isFile()) throw new PlatformError("IMAGE_MALFORMED", `${JSON.stringify(name)} of the OCI layout is no file`);
    return storedFile(handle, { offset: 0, size: stat.size, owned: true });
  } catch (error) {
    await handle.close();
    throw error;
  }
}

function refuseOutside(root: string, resolved: string, name: string): void {
  const base = root === "/" ? "/" : `${root}/`;
  if (resolved.startsWith(base)) return;
  throw new PlatformError("IMAGE_LAYER_UNSAFE", `${JSON.stringify(name)} of the OCI layout is a link that leads outside of it`);
}

export async function openLayoutArchive(path: string): Promise<LayoutFiles> {
  const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch((error: unknown) => {
    throw new PlatformError("IMAGE_SOURCE_UNREACHABLE", `Cannot read the archive ${JSON.stringify(path)}`, { cause: error });
  });
  try {
    const files = await openArchive(handle, path);
    return {
      open: async (name) => storedFile(handle, { ...findMember(files, name), owned: false }),
      close: async () => await handle.close(),
    };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

function findMember(files: ReadonlyMap<string, ArchiveFile>, name: string): ArchiveFile {
  const file = files.get(name);
  if (file === undefined) throw new PlatformError("IMAGE_MALFORMED", `The archive has no file ${JSON.stringify(name)}`);
  return file;
}

function storedFile(handle: FileHandle, area: { readonly offset: number; readonly size: number; readonly owned: boolean }): StoredFile {
  return {
    size: area.size,
    read: (signal) => readArea(handle, area, signal),
    close: async () => {
      if (area.owned) await handle.close();
    },
  };
}

async function* readArea(
  handle: FileHandle,
  area: { readonly offset: number; readonly size: number },
  signal: AbortSignal,
): AsyncIterable<Buffer> {
  let position = area.offset;
  const end = area.offset + area.size;
  while (position < end) {
    signal.throwIfAborted();
    const buffer = Buffer.allocUnsafe(Math.min(READ_BYTES, end - position));
    const { bytesRead } = await handle.read(buffer, 0, buffer.length, position);
    if (bytesRead === 0) return;
    position += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}

/** A blob by its descriptor; reading it to the end throws unless size and digest are right. */
export interface Blob {
  read(signal: AbortSignal): AsyncIterable<Buffer>;
}

export function blobOf(files: LayoutFiles, descriptor: { readonly digest: string; readonly size: number }): Blob {
  return { read: (signal) => readBlob(files, descriptor, signal) };
}

async function* readBlob(
  files: LayoutFiles,
  { digest, size }: { readonly digest: string; readonly size: number },
  signal: AbortSignal,
): AsyncIterable<Buffer> {
  const file = await files.open(`blobs/${digest.replace(":", "/")}`);
  try {
    if (file.size < size) throw new PlatformError("IMAGE_TRUNCATED", `Blob ${digest} has ${file.size} of ${size} bytes`);
    if (file.size > size) throw mismatch(digest, `it has ${file.size} bytes instead of ${size}`);
    const hash: Hash = createHash("sha256");
    let total = 0;
    for await (const chunk of file.read(signal)) {
      hash.update(chunk);
      total += chunk.length;
      yield chunk;
    }
    if (total < size) throw new PlatformError("IMAGE_TRUNCATED", `Blob ${digest} has ${total} of ${size} bytes`);
    const found = `sha256:${hash.digest("hex")}`;
    if (found !== digest) throw mismatch(digest, `its bytes have ${found}`);
  } finally {
    await file.close();
  }
}

export function mismatch(digest: string, why: string): PlatformError {
  return new PlatformError("IMAGE_DIGEST_MISMATCH", `Blob ${digest} is not what its digest says: ${why}`);
}

/** A small blob or file as text. */
export async function readText(
  source: { read(signal: AbortSignal): AsyncIterable<Buffer> },
  name: string,
  signal: AbortSignal,
): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of source.read(signal)) {
    size += chunk.length;
    if (size > MAX_DOCUMENT_BYTES)
      throw new PlatformError("IMAGE_MALFORMED", `Cannot read ${name} of the image: it is larger than ${MAX_DOCUMENT_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

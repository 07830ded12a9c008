/** A raw or qcow2 disk, from this host or over HTTP(S), to a read-only base. Never whole in memory. */
import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { chmod, copyFile, open, rename, rm, stat, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { abortable, PlatformError } from "@fluxvm/core";
import { DISK_QCOW2, DISK_RAW, type ImageContent } from "../content.ts";
import { digestOfInputs } from "../digest.ts";
import type { ImageImport } from "../import-source.ts";
import type { ImportResult } from "../library/library.ts";
import type { ImageSource } from "../source.ts";
import { download } from "./download.ts";
import { inspectDisk, type DiskFacts } from "./inspect.ts";
import { SparseWriter } from "./sparse-file.ts";

export type DiskSource = Extract<ImageSource, { readonly kind: "file" | "url" }>;

const READ_BYTES = 1 << 20;

export async function importDisk(request: ImageImport, source: DiskSource): Promise<ImportResult<ImageContent>> {
  const { context, files, sha256 } = request;
  const name = source.kind === "file" ? source.path : source.url;
  const path = join(context.directory, "disk");
  const isShared = source.kind === "file" && (await shareBlocks(source.path, path));
  const handle = await open(path, isShared ? "r+" : "wx+", 0o600);
  let facts: DiskFacts;
  let found: string;
  try {
    found = isShared ? await hashShared(handle, request) : await fetchInto(handle, request, source);
    if (sha256 !== undefined && found !== sha256) {
      throw new PlatformError("IMAGE_DIGEST_MISMATCH", `The disk ${JSON.stringify(name)} has sha256 ${found}, not ${sha256}`);
    }
    context.report({ phase: "verifying", done_bytes: 0 });
    facts = await inspectDisk(handle, name);
  } finally {
    await handle.close();
  }
  const digest = digestOfInputs({ from: "disk", sha256: found });
  const held = await files.ensure<ImageContent>(
    digest,
    context.signal,
    async (directory) => await finish(path, directory, { facts, digest }),
  );
  return { content: held.meta, release: held.release };
}

async function finish(
  path: string,
  directory: string,
  { facts, digest }: { readonly facts: DiskFacts; readonly digest: string },
): Promise<ImageContent> {
  const file = facts.format === "raw" ? DISK_RAW : DISK_QCOW2;
  await chmod(path, 0o444);
  await rename(path, join(directory, file));
  const { blocks } = await stat(join(directory, file));
  return { digest, ...facts, file, storedBytes: blocks * 512 };
}

/** A copy that shares its blocks with the source until one of them changes, where the file system can. */
async function shareBlocks(from: string, to: string): Promise<boolean> {
  const info = await stat(from).catch(() => undefined);
  if (info?.isFile() !== true) return false;
  try {
    await copyFile(from, to, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE_FORCE);
    await chmod(to, 0o600);
    return true;
  } catch {
    await rm(to, { force: true });
    return false;
  }
}

/** The copy is ours alone, so what is hashed is what is kept. */
async function hashShared(handle: FileHandle, { context, limits }: ImageImport): Promise<string> {
  const { size } = await handle.stat();
  if (size > limits.maxUnpackedBytes)
    throw new PlatformError("IMAGE_TOO_LARGE", `The disk is larger than ${limits.maxUnpackedBytes} bytes`);
  const hash = createHash("sha256");
  for (let position = 0; position < size;) {
    context.signal.throwIfAborted();
    const buffer = Buffer.allocUnsafe(Math.min(READ_BYTES, size - position));
    const { bytesRead } = await handle.read(buffer, 0, buffer.length, position);
    if (bytesRead === 0) break;
    hash.update(buffer.subarray(0, bytesRead));
    position += bytesRead;
    context.report({ phase: "verifying", done_bytes: position, total_bytes: size });
  }
  if (size % 512 !== 0) await handle.truncate(Math.ceil(size / 512) * 512);
  return hash.digest("hex");
}

/** Resolves with the hex digest of the bytes. */
async function fetchInto(handle: FileHandle, request: ImageImport, source: DiskSource): Promise<string> {
  const { context, limits, clock } = request;
  const writer = new SparseWriter(handle, { maxBytes: limits.maxUnpackedBytes });
  if (source.kind === "url") {
    const onProgress = (done: number, total: number | undefined): void =>
      context.report({ phase: "fetching", done_bytes: done, ...(total === undefined ? {} : { total_bytes: total }) });
    await download({ url: source.url, writer, maxBytes: limits.maxUnpackedBytes, clock, signal: context.signal, onProgress });
  } else {
    await copyLocal(source.path, writer, request);
  }
  return await writer.finish();
}

async function copyLocal(path: string, writer: SparseWriter, { context }: ImageImport): Promise<void> {
  const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch((error: unknown) => {
    throw new PlatformError("IMAGE_SOURCE_UNREACHABLE", `Cannot read ${JSON.stringify(path)}`, { cause: error });
  });
  try {
    const info = await handle.stat();
    if (!info.isFile()) throw new PlatformError("IMAGE_SOURCE_INVALID", `${JSON.stringify(path)} is no file`);
    for (let position = 0; position < info.size;) {
      const buffer = Buffer.allocUnsafe(Math.min(READ_BYTES, info.size - position));
      const { bytesRead } = await abortable(handle.read(buffer, 0, buffer.length, position), context.signal);
      if (bytesRead === 0) throw new PlatformError("IMAGE_TRUNCATED", `${JSON.stringify(path)} became shorter while it was read`);
      await writer.write(buffer.subarray(0, bytesRead));
      position += bytesRead;
      context.report({ phase: "fetching", done_bytes: position, total_bytes: info.size });
    }
  } finally {
    await handle.close();
  }
}

/** A raw or qcow2 disk, from this host or over HTTP(S), to a read-only base. Never whole in memory. */
import { constants } from "node:fs";
import { chmod, open, rename, stat, type FileHandle } from "node:fs/promises";
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
  const handle = await open(path, "wx+", 0o600);
  let facts: DiskFacts;
  let found: string;
  try {
    found = await fetchInto(handle, request, source);
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

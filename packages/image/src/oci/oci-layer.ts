/** A layer blob as the tar it holds: decompressed by what its first bytes say, both digests checked on the way. */
import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip, createZstdDecompress } from "node:zlib";
import { isPlatformError, PlatformError } from "@fluxvm/core";
import type { RootfsLayer } from "../rootfs/layer.ts";
import { mismatch, type Blob } from "./blob-store.ts";

export interface OciLayerOptions {
  readonly blob: Blob;
  readonly digest: string;
  /** Digest of the uncompressed tar, from the image's configuration. */
  readonly diffId: string;
  /** Called with the compressed bytes of each piece read. */
  readonly onRead: (bytes: number) => void;
}

const DECOMPRESSED_CHUNK_BYTES = 1 << 18;

export function ociLayer(options: OciLayerOptions): RootfsLayer {
  const { blob, digest } = options;
  return {
    name: digest,
    open: (signal) => openLayer(options, signal),
    verify: async (signal) => {
      const chunks = blob.read(signal)[Symbol.asyncIterator]();
      while ((await chunks.next()).done !== true);
    },
  };
}

async function* openLayer(options: OciLayerOptions, signal: AbortSignal): AsyncIterable<Buffer> {
  const { blob, digest, diffId, onRead } = options;
  const hash = createHash("sha256");
  for await (const chunk of decompress(counted(blob.read(signal), onRead), digest)) {
    hash.update(chunk);
    yield chunk;
  }
  const found = `sha256:${hash.digest("hex")}`;
  if (found !== diffId) throw mismatch(digest, `unpacked it has ${found}, the configuration says ${diffId}`);
}

async function* counted(chunks: AsyncIterable<Buffer>, onRead: (bytes: number) => void): AsyncIterable<Buffer> {
  for await (const chunk of chunks) {
    onRead(chunk.length);
    yield chunk;
  }
}

async function* decompress(chunks: AsyncIterable<Buffer>, digest: string): AsyncIterable<Buffer> {
  const iterator = chunks[Symbol.asyncIterator]();
  const first = await iterator.next();
  if (first.done === true) return;
  const rest = prepend(first.value, iterator);
  const decompressor = chooseDecompressor(first.value);
  if (decompressor === undefined) {
    yield* rest;
    return;
  }
  const feeding = pipeline(Readable.from(rest, { objectMode: false }), decompressor);
  feeding.catch(() => undefined); // told through the decompressor
  try {
    for await (const chunk of decompressor as AsyncIterable<Buffer>) yield chunk; // it has no encoding
    await feeding;
  } catch (error) {
    if (isPlatformError(error) || (error instanceof Error && error.name === "AbortError")) throw error;
    throw new PlatformError("IMAGE_MALFORMED", `Blob ${digest} cannot be decompressed`, { cause: error });
  } finally {
    decompressor.destroy();
  }
}

async function* prepend(first: Buffer, iterator: AsyncIterator<Buffer>): AsyncIterable<Buffer> {
  try {
    yield first;
    for (;;) {
      const next = await iterator.next();
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    await iterator.return?.();
  }
}

function chooseDecompressor(head: Buffer): ReturnType<typeof createGunzip> | ReturnType<typeof createZstdDecompress> | undefined {
  if (head.length < 4) return undefined;
  if (head.readUInt16BE(0) === 0x1f8b) return createGunzip({ chunkSize: DECOMPRESSED_CHUNK_BYTES });
  const magic = head.readUInt32LE(0);
  const isZstd = magic === 0xfd2f_b528 || (magic & 0xffff_fff0) >>> 0 === 0x184d_2a50;
  return isZstd ? createZstdDecompress({ chunkSize: DECOMPRESSED_CHUNK_BYTES }) : undefined;
}

/** Decompresses kernels and modules by what their first bytes say. xz alone needs a program. */
import { promisify } from "node:util";
import { gunzip, zstdDecompress } from "node:zlib";
import { PlatformError } from "@fluxvm/core";
import { spawnTool } from "@fluxvm/host";
import { decodeLz4Legacy, LZ4_LEGACY_MAGIC } from "./lz4.ts";

const MAX_BYTES = 512 << 20;
const XZ_TIMEOUT_MS = 120_000;

const UNREAD: readonly { readonly magic: string; readonly name: string }[] = [
  { magic: "425a68", name: "bzip2" },
  { magic: "5d0000", name: "LZMA" },
  { magic: "894c5a4f", name: "LZO" },
];

/** Bytes that are not compressed come back as they are. @throws PlatformError `KERNEL_INVALID` naming `what` */
export async function decompress(input: Buffer, what: string, signal: AbortSignal): Promise<Buffer> {
  const head = input.subarray(0, 6).toString("hex");
  const unread = UNREAD.find(({ magic }) => head.startsWith(magic));
  if (unread !== undefined) throw new PlatformError("KERNEL_INVALID", `Cannot read ${what}: compression ${unread.name} is not known`);
  try {
    if (head.startsWith("1f8b")) return await promisify(gunzip)(input, { maxOutputLength: MAX_BYTES });
    if (head.startsWith("28b52ffd")) return await promisify(zstdDecompress)(input, { maxOutputLength: MAX_BYTES });
    if (head === "fd377a585a00") return await decompressXz(input, signal);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof PlatformError && error.code !== "HOST_TOOL_FAILED") throw error;
    throw damaged(what, error);
  }
  if (input.length < 4 || input.readUInt32LE(0) !== LZ4_LEGACY_MAGIC) return input;
  const decoded = decodeLz4Legacy(input, MAX_BYTES);
  if (decoded === undefined) throw damaged(what);
  return decoded;
}

async function decompressXz(input: Buffer, signal: AbortSignal): Promise<Buffer> {
  const tool = spawnTool({ command: "xz", args: ["--decompress", "--stdout", "--single-stream"], timeoutMs: XZ_TIMEOUT_MS, signal });
  tool.stdin.end(input);
  const chunks: Buffer[] = [];
  let size = 0;
  // no encoding was set, so chunks are buffers
  for await (const chunk of tool.stdout as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_BYTES) {
      tool.kill();
      throw new PlatformError("KERNEL_INVALID", `It unpacks to more than ${MAX_BYTES} bytes`);
    }
    chunks.push(chunk);
  }
  await tool.done;
  return Buffer.concat(chunks);
}

function damaged(what: string, cause?: unknown): PlatformError {
  return new PlatformError("KERNEL_INVALID", `Cannot read ${what}: its compressed data is damaged`, { cause });
}

/**
 * Makes an ext4 file of layers through `fluxvm-host-helper unpack` (native/host-helper/src/unpack/mod.rs describes the
 * process; stream.rs the frames). Nothing a layer holds is interpreted on this side.
 */
import type { Writable } from "node:stream";
import { isPlatformError, PlatformError, type ErrorCode } from "@fluxvm/core";
import { spawnTool, type RunningTool } from "@fluxvm/host";
import { outOfSpace } from "../host-error.ts";
import type { ImageLimits, ImageTools } from "../ports.ts";
import type { RootfsLayer } from "./layer.ts";

export interface RootfsRequest {
  readonly layers: readonly RootfsLayer[];
  /** An empty directory for this work, removed by its owner. */
  readonly work: string;
  /** The file to make. */
  readonly disk: string;
  /** `sha256:…` that UUID and hash seed derive from. */
  readonly digest: string;
  /** Seconds since 1970 for what has no time of its own. */
  readonly epoch: number;
  readonly minBytes: number;
  readonly tools: Pick<ImageTools, "hostHelper" | "mke2fs">;
  readonly limits: ImageLimits;
  readonly signal: AbortSignal;
  /** Called with the bytes unpacked so far. */
  readonly onBytes?: (bytes: number) => void;
}

export interface RootfsResult {
  readonly diskBytes: number;
  /** False when the daemon is not root: everything then belongs to the image's root. */
  readonly ownersKept: boolean;
}

const MAX_CHUNK_BYTES = 1 << 20;
const MAX_REPORT_BYTES = 64 << 10;
/** What a tar may spend on headers beyond the bytes of its files. */
const HEADER_BYTES_PER_FILE = 4096;

/** @throws PlatformError `IMAGE_LAYER_UNSAFE`, `IMAGE_MALFORMED`, `IMAGE_TRUNCATED`, `IMAGE_TOO_LARGE`, `IMAGE_DIGEST_MISMATCH`, `HOST_OUT_OF_SPACE` */
export async function buildRootfs(request: RootfsRequest): Promise<RootfsResult> {
  const { tools, limits, signal } = request;
  const tool = spawnTool({
    command: tools.hostHelper,
    args: ["unpack", JSON.stringify(specification(request))],
    timeoutMs: limits.importTimeoutMs,
    okCodes: [1],
    signal,
  });
  const report = readReport(tool);
  let current: RootfsLayer | undefined;
  try {
    const taken = await sendLayers(request, tool, (layer) => {
      current = layer;
    });
    await tool.done;
    return parseReport(await report, taken);
  } catch (error) {
    tool.kill();
    await tool.done.catch(() => undefined);
    await report.catch(() => undefined);
    signal.throwIfAborted();
    if (current !== undefined && mayBeDamage(error)) await current.verify(signal);
    throw error;
  }
}

function specification(request: RootfsRequest): Readonly<Record<string, unknown>> {
  const { work, disk, digest, epoch, minBytes, tools, limits } = request;
  const hex = digest.slice("sha256:".length);
  return {
    work,
    disk,
    mke2fs: tools.mke2fs,
    uuid: toUuid(hex.slice(0, 32)),
    hash_seed: toUuid(hex.slice(32, 64)),
    epoch,
    min_bytes: minBytes,
    max_bytes: limits.maxUnpackedBytes,
    max_files: limits.maxFiles,
  };
}

/** 128 bits as a version 8 UUID (RFC 9562: for what is made by rules of one's own). */
function toUuid(hex: string): string {
  const variant = ((Number.parseInt(hex.slice(16, 17), 16) & 3) | 8).toString(16);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

/** False when the unpacker stopped reading: its report then says why. */
async function sendLayers(request: RootfsRequest, tool: RunningTool, enter: (layer: RootfsLayer) => void): Promise<boolean> {
  const { layers, limits, signal, onBytes } = request;
  const maxBytes = limits.maxUnpackedBytes + limits.maxFiles * HEADER_BYTES_PER_FILE;
  let sent = 0;
  for (const layer of layers) {
    enter(layer);
    for await (const chunk of layer.open(signal)) {
      sent += chunk.length;
      if (sent > maxBytes)
        throw new PlatformError("IMAGE_TOO_LARGE", `The image unpacks to more than ${limits.maxUnpackedBytes} bytes (${layer.name})`);
      if (!(await writeData(tool.stdin, chunk))) return false;
      onBytes?.(sent);
    }
    if (!(await writeFrame(tool.stdin, "E", Buffer.alloc(0)))) return false;
  }
  const finished = await writeFrame(tool.stdin, "F", Buffer.alloc(0));
  tool.stdin.end();
  return finished;
}

async function writeData(stdin: Writable, data: Buffer): Promise<boolean> {
  for (let offset = 0; offset < data.length; offset += MAX_CHUNK_BYTES) {
    if (!(await writeFrame(stdin, "D", data.subarray(offset, offset + MAX_CHUNK_BYTES)))) return false;
  }
  return true;
}

async function writeFrame(stdin: Writable, kind: "D" | "E" | "F", data: Buffer): Promise<boolean> {
  const header = Buffer.alloc(5);
  header.write(kind, 0, "latin1");
  header.writeUInt32BE(data.length, 1);
  if (stdin.destroyed) return false;
  return await new Promise<boolean>((resolve) => {
    stdin.cork();
    stdin.write(header);
    stdin.write(data, (error) => resolve(error === null || error === undefined));
    stdin.uncork();
  });
}

async function readReport(tool: RunningTool): Promise<string> {
  let text = "";
  for await (const chunk of tool.stdout as AsyncIterable<Buffer>) if (text.length < MAX_REPORT_BYTES) text += chunk.toString("utf8"); // no encoding was set
  return text;
}

function parseReport(text: string, taken: boolean): RootfsResult {
  const report = parseJson(text);
  if (report === undefined)
    throw new PlatformError("HOST_TOOL_FAILED", "The unpacker ended without a report", { details: { report: text } });
  if (report.ok === true && taken) return { diskBytes: Number(report.diskBytes), ownersKept: report.ownersKept === true };
  const entry = typeof report.entry === "string" && report.entry !== "" ? `, entry ${JSON.stringify(report.entry)}` : "";
  throw failureOf(String(report.kind), `${String(report.message)}${entry}`);
}

function parseJson(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    return JSON.parse(text) as Readonly<Record<string, unknown>>; // the helper is ours; each field is looked at
  } catch {
    return undefined;
  }
}

const CODES: Readonly<Record<string, ErrorCode>> = {
  unsafe: "IMAGE_LAYER_UNSAFE",
  malformed: "IMAGE_MALFORMED",
  truncated: "IMAGE_TRUNCATED",
  too_large: "IMAGE_TOO_LARGE",
  cancelled: "REQUEST_CANCELLED",
  tool: "IMAGE_BUILD_FAILED",
};

function failureOf(kind: string, message: string): PlatformError {
  if (kind === "out_of_space") return outOfSpace(new Error(message));
  if (kind === "tool" && message.includes("is not installed")) return new PlatformError("HOST_TOOL_MISSING", message);
  return new PlatformError(CODES[kind] ?? "HOST_TOOL_FAILED", `Cannot unpack the image: ${message}`);
}

/** Errors that a damaged blob can cause: all that speak of its bytes, and those of the decompressor. */
function mayBeDamage(error: unknown): boolean {
  if (!isPlatformError(error)) return true;
  return ["IMAGE_LAYER_UNSAFE", "IMAGE_MALFORMED", "IMAGE_TRUNCATED", "IMAGE_TOO_LARGE"].includes(error.code);
}

/**
 * Fetches a file over HTTP(S): redirects followed by hand and counted, an interrupted transfer resumed by range, size
 * bounded, every wait with a deadline. The digest asked for is what makes the bytes trustworthy, not the connection.
 */
import { abortable, isPlatformError, PlatformError, type Clock } from "@fluxvm/core";
import { request, type Dispatcher } from "undici";
import type { SparseWriter } from "./sparse-file.ts";

export interface DownloadRequest {
  readonly url: string;
  readonly writer: SparseWriter;
  readonly maxBytes: number;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly onProgress: (done: number, total: number | undefined) => void;
}

const MAX_REDIRECTS = 5;
/** Attempts in a row without a single new byte. */
const MAX_FRUITLESS = 4;
const RETRY_MS = 500;
const HEADERS_TIMEOUT_MS = 30_000;
const BODY_TIMEOUT_MS = 60_000;

interface Progress {
  total: number | undefined;
  /** Validator of the bytes got so far, for `If-Range`. */
  etag: string | undefined;
}

/** @throws PlatformError `IMAGE_SOURCE_UNREACHABLE`, `IMAGE_TOO_LARGE`, `IMAGE_TRUNCATED` */
export async function download(options: DownloadRequest): Promise<void> {
  const { writer, clock, signal } = options;
  const progress: Progress = { total: undefined, etag: undefined };
  let fruitless = 0;
  for (;;) {
    const before = writer.size;
    try {
      await transfer(options, progress);
      return;
    } catch (error) {
      signal.throwIfAborted();
      if (!isInterruption(error)) throw error;
      fruitless = writer.size > before ? 0 : fruitless + 1;
      if (fruitless >= MAX_FRUITLESS) throw gaveUp(options, progress, error);
    }
    await clock.sleep(RETRY_MS * (fruitless + 1), { signal });
  }
}

async function transfer(options: DownloadRequest, progress: Progress): Promise<void> {
  const { writer, maxBytes, signal, onProgress } = options;
  const offset = writer.size;
  const response = await follow(options, offset, progress.etag);
  try {
    checkStatus(response, offset, options.url);
    const length = Number(response.headers["content-length"]);
    if (Number.isSafeInteger(length)) progress.total = offset + length;
    if ((progress.total ?? 0) > maxBytes)
      throw new PlatformError("IMAGE_TOO_LARGE", `The disk has ${progress.total} bytes, the limit is ${maxBytes}`);
    const etag = response.headers.etag;
    progress.etag = typeof etag === "string" && !etag.startsWith("W/") ? etag : undefined;
    // no encoding was set, so chunks are buffers
    for await (const chunk of response.body as AsyncIterable<Buffer>) {
      await abortable(writer.write(chunk), signal);
      onProgress(writer.size, progress.total);
    }
  } finally {
    response.body.on("error", () => undefined).destroy();
  }
  if (progress.total !== undefined && writer.size < progress.total) throw new Interruption("the connection was closed early");
}

async function follow(options: DownloadRequest, offset: number, etag: string | undefined): Promise<Dispatcher.ResponseData> {
  let url = new URL(options.url);
  for (let hops = 0; hops <= MAX_REDIRECTS; hops += 1) {
    const response = await request(url, {
      method: "GET",
      signal: options.signal,
      headersTimeout: HEADERS_TIMEOUT_MS,
      bodyTimeout: BODY_TIMEOUT_MS,
      headers: {
        "accept-encoding": "identity",
        "user-agent": "fluxvm",
        ...(offset > 0 ? { range: `bytes=${offset}-`, ...(etag === undefined ? {} : { "if-range": etag }) } : {}),
      },
    });
    const { location } = response.headers;
    if (![301, 302, 303, 307, 308].includes(response.statusCode) || typeof location !== "string") return response;
    await response.body.dump();
    if (!URL.canParse(location, url.href)) throw unreachable(options.url, "it redirects to no URL");
    url = new URL(location, url);
    if (url.protocol !== "http:" && url.protocol !== "https:") throw unreachable(options.url, `it redirects to ${url.protocol}`);
  }
  throw unreachable(options.url, `more than ${MAX_REDIRECTS} redirects`);
}

function checkStatus(response: Dispatcher.ResponseData, offset: number, url: string): void {
  const { statusCode, headers } = response;
  if (offset === 0 && statusCode === 200) return;
  if (offset > 0 && statusCode === 206 && String(headers["content-range"]).startsWith(`bytes ${offset}-`)) return;
  if (offset > 0 && (statusCode === 200 || statusCode === 206))
    throw unreachable(url, "the connection broke, and the server cannot resume");
  if (statusCode >= 500 || statusCode === 429) throw new Interruption(`the server answered ${statusCode}`);
  throw unreachable(url, `the server answered ${statusCode}`);
}

class Interruption extends Error {
  override readonly name = "Interruption";
}

/** Failures of the connection, as opposed to answers and to failures of ours. */
function isInterruption(error: unknown): boolean {
  if (isPlatformError(error)) return false;
  if (error instanceof Interruption) return true;
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  return (
    code.startsWith("UND_ERR_") ||
    ["ECONNRESET", "ECONNREFUSED", "ETIMEDOUT", "EPIPE", "EAI_AGAIN", "ENOTFOUND", "EHOSTUNREACH", "ENETUNREACH"].includes(code)
  );
}

function gaveUp(options: DownloadRequest, progress: Progress, cause: unknown): PlatformError {
  const got = options.writer.size;
  if (got > 0)
    return new PlatformError("IMAGE_TRUNCATED", `The download ended after ${got} of ${progress.total ?? "unknown"} bytes`, { cause });
  const why = cause instanceof Error ? cause.message : "no answer";
  return unreachable(options.url, why === "" ? "no answer" : why, cause);
}

function unreachable(url: string, why: string, cause?: unknown): PlatformError {
  return new PlatformError("IMAGE_SOURCE_UNREACHABLE", `Cannot fetch ${url}: ${why}`, { cause });
}

/**
 * Reads a JSON body whole, bounded in bytes, time and nesting, and refuses what other readers take in silence:
 * duplicate keys, `__proto__`, bytes that are not UTF-8. A missing body is `undefined`.
 */
import { PlatformError, type Clock } from "@fluxvm/core";
import type { IncomingMessage } from "node:http";

export interface BodyLimits {
  readonly maxBodyBytes: number;
  readonly bodyTimeoutMs: number;
}

const MAX_DEPTH = 32;

/** @throws PlatformError `PAYLOAD_TOO_LARGE`, `REQUEST_TIMEOUT`, `REQUEST_INVALID`, `REQUEST_CANCELLED`. */
export async function readJsonBody(source: IncomingMessage, limits: BodyLimits, clock: Clock): Promise<unknown> {
  const declared = Number(source.headers["content-length"] ?? 0);
  if (declared > limits.maxBodyBytes) throw tooLarge(limits);
  return parseJsonBody(await collect(source, limits, clock));
}

async function collect(source: IncomingMessage, limits: BodyLimits, clock: Clock): Promise<Buffer> {
  return await new Promise<Buffer>((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const settle = (finish: () => void): void => {
      cancelTimer();
      source.off("data", onData).off("end", onEnd).off("error", onBroken).off("close", onBroken);
      finish();
    };
    const cancelTimer = clock.schedule(limits.bodyTimeoutMs, () => {
      settle(() => reject(new PlatformError("REQUEST_TIMEOUT", `The request body did not arrive within ${limits.bodyTimeoutMs} ms`)));
    });
    const onData = (chunk: Buffer): void => {
      size += chunk.length;
      chunks.push(chunk);
      if (size > limits.maxBodyBytes) settle(() => reject(tooLarge(limits)));
    };
    const onEnd = (): void => settle(() => resolve(Buffer.concat(chunks)));
    const onBroken = (): void => settle(() => reject(new PlatformError("REQUEST_CANCELLED", "The request body ended early")));
    source.on("data", onData).on("end", onEnd).on("error", onBroken).on("close", onBroken);
  });
}

export function parseJsonBody(bytes: Uint8Array): unknown {
  if (bytes.length === 0) return undefined;
  let text: string;
  let value: unknown;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new PlatformError("REQUEST_INVALID", "Malformed JSON: the body is not UTF-8", { cause });
  }
  refuseAmbiguity(text); // before parsing, so that nesting is bounded first
  try {
    value = JSON.parse(text) as unknown;
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : "it cannot be parsed";
    throw new PlatformError("REQUEST_INVALID", `Malformed JSON: ${reason.slice(0, 200)}`, { cause });
  }
  if (value === null) throw new PlatformError("REQUEST_INVALID", "Invalid body: must be an object, not null");
  return value;
}

/** One pass over the tokens that matter. Text that is no JSON at all is left for the parser to name. */
function refuseAmbiguity(text: string): void {
  const scopes: (Set<string> | undefined)[] = [];
  const tokens = /"(?:[^"\\]|\\.)*"(\s*:)?|[{}[\]]/gs;
  for (const match of text.matchAll(tokens)) {
    const [token, colon] = match;
    if (token === "{") scopes.push(new Set());
    else if (token === "[") scopes.push(undefined);
    else if (token === "}" || token === "]") scopes.pop();
    else if (colon !== undefined) checkKey(token.slice(0, -colon.length), scopes.at(-1));
    if (scopes.length > MAX_DEPTH) throw new PlatformError("REQUEST_INVALID", `Malformed JSON: nested deeper than ${MAX_DEPTH}`);
  }
}

function checkKey(quoted: string, keys: Set<string> | undefined): void {
  let key: string;
  try {
    key = JSON.parse(quoted) as string; // a quoted token is a string
  } catch {
    return; // the parser will say what is wrong with it
  }
  if (key === "__proto__") throw new PlatformError("REQUEST_INVALID", 'Malformed JSON: the key "__proto__" is not allowed');
  if (keys?.has(key) === true) {
    throw new PlatformError("REQUEST_INVALID", `Malformed JSON: the key ${JSON.stringify(key.slice(0, 80))} appears twice`, {
      fields: [{ path: key.slice(0, 80), message: "appears twice" }],
    });
  }
  keys?.add(key);
}

function tooLarge(limits: BodyLimits): PlatformError {
  return new PlatformError("PAYLOAD_TOO_LARGE", `The request body is larger than ${limits.maxBodyBytes} bytes`);
}

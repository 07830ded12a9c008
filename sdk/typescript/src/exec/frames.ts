/**
 * Binary frames of an attached exec: `u8 channel (0 stdin, 1 stdout, 2 stderr) | u64 big-endian offset | bytes`.
 * The format is documented in `@fluxvm/contracts` (rest/guest.ts).
 */
import { PlatformError, type ExecServerMessage } from "@fluxvm/contracts";

export type OutputStream = "stdout" | "stderr";

export interface OutputFrame {
  readonly stream: OutputStream;
  readonly offset: number;
  readonly data: Buffer;
}

const HEADER_BYTES = 9;
const STDIN_CHANNEL = 0;

export function encodeStdinFrame(offset: number, data: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + data.byteLength);
  frame.writeUInt8(STDIN_CHANNEL, 0);
  frame.writeBigUInt64BE(BigInt(offset), 1);
  frame.set(data, HEADER_BYTES);
  return frame;
}

/** @throws PlatformError `DAEMON_PROTOCOL` */
export function decodeOutputFrame(frame: ArrayBuffer): OutputFrame {
  const buffer = Buffer.from(frame);
  if (buffer.length < HEADER_BYTES) throw malformed(`a frame of ${buffer.length} bytes`);
  const offset = Number(buffer.readBigUInt64BE(1));
  if (!Number.isSafeInteger(offset)) throw malformed("an offset past 2^53");
  const channel = buffer.readUInt8(0);
  if (channel !== 1 && channel !== 2) throw malformed(`channel ${channel}`);
  return { stream: channel === 1 ? "stdout" : "stderr", offset, data: buffer.subarray(HEADER_BYTES) };
}

/** @throws PlatformError `DAEMON_PROTOCOL`. A message of a type unknown to this version is `undefined`. */
export function parseServerMessage(text: string): ExecServerMessage | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw malformed("a text frame that is not JSON");
  }
  const message = value as Partial<Record<string, unknown>> | null; // examined field by field below
  switch (message?.["type"]) {
    case "attached":
      return { type: "attached", stdin_offset: requireOffset(message["stdin_offset"]) };
    case "stdin_ack":
      return { type: "stdin_ack", offset: requireOffset(message["offset"]) };
    case "exit": {
      const counts = { stdout_bytes: requireOffset(message["stdout_bytes"]), stderr_bytes: requireOffset(message["stderr_bytes"]) };
      return { type: "exit", exit: requireExit(message["exit"]), ...counts };
    }
    case "error":
      return { type: "error", error: requireError(message["error"]) };
    default:
      return undefined;
  }
}

type ExitMessage = Extract<ExecServerMessage, { type: "exit" }>;
type ErrorMessage = Extract<ExecServerMessage, { type: "error" }>;

function requireOffset(value: unknown): number {
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) throw malformed("an offset that is no count of bytes");
  return value;
}

function requireExit(value: unknown): ExitMessage["exit"] {
  const exit = value as Partial<ExitMessage["exit"]> | null | undefined; // examined below
  if (typeof exit?.timed_out !== "boolean") throw malformed("an exit without its fields");
  return {
    timed_out: exit.timed_out,
    ...(typeof exit.code === "number" ? { code: exit.code } : {}),
    ...(typeof exit.signal === "string" ? { signal: exit.signal } : {}),
  };
}

function requireError(value: unknown): ErrorMessage["error"] {
  const error = value as Partial<ErrorMessage["error"]> | null | undefined; // examined below
  if (typeof error?.code !== "string" || typeof error.message !== "string") throw malformed("an error without its fields");
  return { code: error.code, class: String(error.class), message: error.message };
}

function malformed(what: string): PlatformError {
  return new PlatformError("DAEMON_PROTOCOL", `The daemon sent ${what} on an exec's connection`);
}

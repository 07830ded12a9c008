/** Codec of the exec WebSocket's frames: `u8 channel | u64 big-endian offset | bytes`, and the client's JSON messages. */
import type { ExecClientMessage } from "@fluxvm/contracts";
import { PlatformError } from "@fluxvm/core";

const HEADER_BYTES = 9;
const CHANNELS = { stdin: 0, stdout: 1, stderr: 2 } as const;

export function encodeOutputFrame(output: {
  readonly stream: "stdout" | "stderr";
  readonly offset: number;
  readonly data: Uint8Array;
}): Uint8Array {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + output.data.length);
  frame.writeUInt8(CHANNELS[output.stream], 0);
  frame.writeBigUInt64BE(BigInt(output.offset), 1);
  frame.set(output.data, HEADER_BYTES);
  return frame;
}

/** @throws PlatformError `REQUEST_INVALID` */
export function decodeStdinFrame(frame: Buffer): { readonly offset: number; readonly bytes: Uint8Array } {
  if (frame.length < HEADER_BYTES) throw new PlatformError("REQUEST_INVALID", "Malformed frame: shorter than its header");
  if (frame.readUInt8(0) !== CHANNELS.stdin) throw new PlatformError("REQUEST_INVALID", "Malformed frame: clients send on channel 0 alone");
  const offset = Number(frame.readBigUInt64BE(1));
  if (!Number.isSafeInteger(offset)) throw new PlatformError("REQUEST_INVALID", "Malformed frame: offset out of range");
  return { offset, bytes: frame.subarray(HEADER_BYTES) };
}

/** @throws PlatformError `REQUEST_INVALID` */
export function decodeClientMessage(text: string): ExecClientMessage {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new PlatformError("REQUEST_INVALID", "Malformed message: not JSON", { cause });
  }
  const message = (typeof value === "object" && value !== null ? value : {}) as Record<string, unknown>; // fields are checked one by one
  switch (message["type"]) {
    case "ack":
      return { type: "ack", stdout: readInteger(message, "stdout", 0), stderr: readInteger(message, "stderr", 0) };
    case "stdin_end":
      return { type: "stdin_end", offset: readInteger(message, "offset", 0) };
    case "resize":
      return { type: "resize", rows: readInteger(message, "rows", 1, 65_535), cols: readInteger(message, "cols", 1, 65_535) };
    case "signal": {
      const { signal } = message;
      if (typeof signal !== "string" || !/^(SIG)?[A-Z0-9+]{1,16}$/.test(signal))
        throw new PlatformError("REQUEST_INVALID", "Malformed message: no such signal name");
      return { type: "signal", signal };
    }
    default:
      throw new PlatformError("REQUEST_INVALID", "Malformed message: unknown type");
  }
}

function readInteger(message: Readonly<Record<string, unknown>>, key: string, minimum: number, maximum = Number.MAX_SAFE_INTEGER): number {
  const value = message[key];
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < minimum || value > maximum) {
    throw new PlatformError("REQUEST_INVALID", `Malformed message: ${key} must be a whole number from ${minimum}`);
  }
  return value;
}

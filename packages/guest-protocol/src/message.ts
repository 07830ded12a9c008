/**
 * Messages inside a stream: length u32, kind u8, body. `native/guest-agent/src/message.rs` is the other side.
 * What the guest sends is bounded: a longer message is `AGENT_PROTOCOL`.
 */
import { PlatformError } from "@fluxvm/core";
import type { ChannelStream } from "@fluxvm/guest-channel";

export const MESSAGE_KIND = { json: 0, stdin: 1, stdout: 2, stderr: 3, file: 4 } as const;

/** Largest body either side sends. */
export const MAX_MESSAGE_BYTES = 128 * 1024;
const HEADER_BYTES = 5;

export interface Message {
  readonly kind: number;
  readonly body: Buffer;
}

export function encodeMessage(kind: number, body: Uint8Array): Buffer {
  const out = Buffer.allocUnsafe(HEADER_BYTES + body.length);
  out.writeUInt32LE(body.length, 0);
  out.writeUInt8(kind, 4);
  out.set(body, HEADER_BYTES);
  return out;
}

export function encodeJson(value: unknown): Buffer {
  return encodeMessage(MESSAGE_KIND.json, Buffer.from(JSON.stringify(value)));
}

/** A message whose body begins with the offset of its bytes. */
export function encodeOffset(kind: number, offset: number, bytes: Uint8Array): Buffer {
  const out = Buffer.allocUnsafe(HEADER_BYTES + 8 + bytes.length);
  out.writeUInt32LE(bytes.length + 8, 0);
  out.writeUInt8(kind, 4);
  out.writeBigUInt64LE(BigInt(offset), HEADER_BYTES);
  out.set(bytes, HEADER_BYTES + 8);
  return out;
}

/** @throws PlatformError `AGENT_PROTOCOL` */
export function splitOffset(body: Buffer): { readonly offset: number; readonly bytes: Buffer } {
  const offset = body.length < 8 ? -1 : Number(body.readBigUInt64LE(0));
  if (!Number.isSafeInteger(offset) || offset < 0) throw violation("output without a right offset");
  return { offset, bytes: body.subarray(8) };
}

export function violation(what: string): PlatformError {
  return new PlatformError("AGENT_PROTOCOL", `The guest agent broke the protocol: ${what}`);
}

/** Cuts a stream into its messages. */
export class MessageReader {
  readonly #stream: ChannelStream;
  #held: Buffer = Buffer.alloc(0);

  constructor(stream: ChannelStream) {
    this.#stream = stream;
  }

  /** The next message; `undefined` when the stream ended after a whole one. @throws PlatformError `AGENT_PROTOCOL` and the stream's failure */
  async next(): Promise<Message | undefined> {
    if (this.#held.length < HEADER_BYTES && !(await this.#fill(HEADER_BYTES))) return undefined;
    const need = this.#needed(this.#held);
    await this.#fill(need);
    const message = { kind: this.#held.readUInt8(4), body: this.#held.subarray(HEADER_BYTES, need) };
    this.#held = this.#held.subarray(need);
    return message;
  }

  /** Holds at least `need` bytes; false when the stream ended and nothing is held. */
  async #fill(need: number): Promise<boolean> {
    const parts: Buffer[] = this.#held.length === 0 ? [] : [this.#held];
    let count = this.#held.length;
    while (count < need) {
      const chunk = await this.#stream.read();
      if (chunk === undefined && count === 0) return false;
      if (chunk === undefined) throw violation("a stream that ends inside a message");
      parts.push(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
      count += chunk.length;
    }
    this.#held = parts.length === 1 ? (parts[0] ?? this.#held) : Buffer.concat(parts);
    return true;
  }

  #needed(bytes: Buffer): number {
    const length = bytes.readUInt32LE(0);
    if (length > MAX_MESSAGE_BYTES) throw violation("a message that is too long");
    return HEADER_BYTES + length;
  }
}

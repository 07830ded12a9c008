/** Frames of the helper's socket: a little-endian u32 length, then that many bytes of JSON. No I/O here. */

export const MAX_FRAME_BYTES = 1 << 20;

export function encodeFrame(message: unknown): Buffer {
  const body = Buffer.from(JSON.stringify(message));
  const header = Buffer.alloc(4);
  header.writeUInt32LE(body.length);
  return Buffer.concat([header, body]);
}

/** Takes bytes in any cut and gives whole messages back. Throws on a frame that is too large or not JSON. */
export class FrameDecoder {
  #buffer: Buffer = Buffer.alloc(0);

  push(bytes: Buffer): unknown[] {
    this.#buffer = this.#buffer.length === 0 ? bytes : Buffer.concat([this.#buffer, bytes]);
    const messages: unknown[] = [];
    while (this.#buffer.length >= 4) {
      const length = this.#buffer.readUInt32LE(0);
      if (length > MAX_FRAME_BYTES) throw new Error(`frame of ${length} bytes`);
      if (this.#buffer.length < 4 + length) break;
      messages.push(JSON.parse(this.#buffer.toString("utf8", 4, 4 + length)));
      this.#buffer = this.#buffer.subarray(4 + length);
    }
    return messages;
  }
}

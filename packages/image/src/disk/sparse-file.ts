/** Writes a stream to a file, leaving holes where it is zero, and hashes it on the way. */
import { createHash } from "node:crypto";
import type { FileHandle } from "node:fs/promises";
import { PlatformError } from "@fluxvm/core";

const PIECE_BYTES = 64 << 10;
const ZEROS = Buffer.alloc(PIECE_BYTES);

export class SparseWriter {
  readonly #handle: FileHandle;
  readonly #maxBytes: number;
  readonly #hash = createHash("sha256");
  #size = 0;

  constructor(handle: FileHandle, options: { readonly maxBytes: number }) {
    this.#handle = handle;
    this.#maxBytes = options.maxBytes;
  }

  get size(): number {
    return this.#size;
  }

  /** @throws PlatformError `IMAGE_TOO_LARGE` */
  async write(chunk: Buffer): Promise<void> {
    if (this.#size + chunk.length > this.#maxBytes)
      throw new PlatformError("IMAGE_TOO_LARGE", `The disk is larger than ${this.#maxBytes} bytes`);
    this.#hash.update(chunk);
    for (let offset = 0; offset < chunk.length; offset += PIECE_BYTES) {
      const piece = chunk.subarray(offset, offset + PIECE_BYTES);
      if (!piece.equals(ZEROS.subarray(0, piece.length))) await writeAll(this.#handle, piece, this.#size + offset);
    }
    this.#size += chunk.length;
  }

  /** Pads the file to whole sectors and resolves with the hex digest of what was written. */
  async finish(): Promise<string> {
    await this.#handle.truncate(Math.ceil(this.#size / 512) * 512);
    return this.#hash.digest("hex");
  }
}

async function writeAll(handle: FileHandle, data: Buffer, position: number): Promise<void> {
  let done = 0;
  while (done < data.length) done += (await handle.write(data, done, data.length - done, position + done)).bytesWritten;
}

/**
 * One stream of a channel, as its user sees it: bytes each way, each way with its own end and window.
 *
 *     open ──end()──► our side ended ──┐
 *      │                               ├──► over
 *      └──their FIN─► their side ended─┘
 *     any ──reset(), RESET, channel lost──► failed (reads and writes reject)
 *
 * `read` gives what came, in order, and only what is read opens the guest's window again: so at most `WINDOW_BYTES`
 * wait here. `write` resolves when the bytes have left for the transport. One reader at a time.
 */
import { isPlatformError, PlatformError } from "@fluxvm/core";
import { MAX_FRAME_PAYLOAD_BYTES } from "./frame.ts";

export const WINDOW_BYTES = 256 * 1024;

interface PendingWrite {
  bytes: Uint8Array;
  readonly done: () => void;
  readonly fail: (error: Error) => void;
}

/** What a stream needs of its channel. */
export interface StreamPort {
  /** There is something to send. */
  wake(): void;
  sendWindow(stream: number, consumed: number): void;
  sendReset(stream: number, error: { readonly code: string; readonly message: string }): void;
  forget(stream: number): void;
}

export class ChannelStream {
  readonly id: number;
  readonly #port: StreamPort;
  readonly #received: Uint8Array[] = [];
  readonly #writes: PendingWrite[] = [];
  #waiting: { readonly resolve: (chunk: Uint8Array | undefined) => void; readonly reject: (error: Error) => void } | undefined;
  #receivedOffset = 0;
  #consumed = 0;
  #announced = 0;
  #theirEnd = false;
  #sent = 0;
  #limit = WINDOW_BYTES;
  #ended = false;
  #finSent = false;
  #failure: Error | undefined;

  constructor(id: number, port: StreamPort) {
    this.id = id;
    this.#port = port;
  }

  /** The next bytes; `undefined` at their end. Rejects once the stream has failed, after what came before. */
  async read(): Promise<Uint8Array | undefined> {
    const chunk = this.#received.shift();
    if (chunk !== undefined) return this.#consume(chunk);
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#theirEnd) return undefined;
    return await new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
    });
  }

  async write(bytes: Uint8Array): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#ended) throw new PlatformError("AGENT_UNREACHABLE", "The stream to the guest agent was already ended");
    if (bytes.length === 0) return;
    await new Promise<void>((done, fail) => {
      this.#writes.push({ bytes, done, fail });
      this.#port.wake();
    });
  }

  /** No more will be written. */
  end(): void {
    if (this.#ended || this.#failure !== undefined) return;
    this.#ended = true;
    this.#port.wake();
  }

  /** Gives the stream up, both ways. What waits here fails with `reason`, whatever it is. */
  reset(reason: Error = new PlatformError("REQUEST_CANCELLED", "The caller gave up")): void {
    if (this.isOver || this.#failure !== undefined) return;
    const told = isPlatformError(reason) ? reason : { code: "REQUEST_CANCELLED", message: "The caller gave up" };
    this.#port.sendReset(this.id, { code: told.code, message: told.message });
    this.fail(reason);
  }

  get isOver(): boolean {
    return this.#theirEnd && this.#finSent;
  }

  // --- for the channel ---

  /** @returns false when the guest broke the rules. */
  onData(offset: number, bytes: Uint8Array): boolean {
    if (this.#failure !== undefined) return true;
    if (offset !== this.#receivedOffset || this.#theirEnd) return false;
    this.#receivedOffset += bytes.length;
    if (this.#receivedOffset > this.#announced + WINDOW_BYTES) return false;
    if (bytes.length === 0) return true;
    const waiting = this.#waiting;
    this.#waiting = undefined;
    if (waiting === undefined) this.#received.push(bytes);
    else waiting.resolve(this.#consume(bytes));
    return true;
  }

  onFin(offset: number): boolean {
    if (offset !== this.#receivedOffset || this.#theirEnd) return false;
    this.#theirEnd = true;
    this.#waiting?.resolve(undefined);
    this.#waiting = undefined;
    if (this.isOver) this.#port.forget(this.id);
    return true;
  }

  onWindow(consumed: number): boolean {
    if (consumed > this.#sent) return false;
    this.#limit = Math.max(this.#limit, consumed + WINDOW_BYTES);
    return true;
  }

  fail(error: Error): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.#waiting?.reject(error);
    this.#waiting = undefined;
    for (const write of this.#writes.splice(0)) write.fail(error);
    this.#port.forget(this.id);
  }

  get hasToSend(): boolean {
    if (this.#failure !== undefined) return false;
    return this.#writes.length > 0 ? this.#sent < this.#limit : this.#ended && !this.#finSent;
  }

  /** The next piece to send, with its offset; `fin` when this stream's last byte is out. */
  takePiece(): { readonly offset: number; readonly bytes?: Uint8Array; readonly fin: boolean } {
    const offset = this.#sent;
    const write = this.#writes[0];
    if (write === undefined) {
      this.#finSent = true;
      if (this.isOver) this.#port.forget(this.id);
      return { offset, fin: true };
    }
    const count = Math.min(write.bytes.length, MAX_FRAME_PAYLOAD_BYTES, this.#limit - this.#sent);
    const bytes = write.bytes.subarray(0, count);
    write.bytes = write.bytes.subarray(count);
    this.#sent += count;
    if (write.bytes.length === 0) {
      this.#writes.shift();
      write.done();
    }
    return { offset, bytes, fin: false };
  }

  #consume(bytes: Uint8Array): Uint8Array {
    this.#consumed += bytes.length;
    if (!this.#theirEnd && this.#consumed - this.#announced >= WINDOW_BYTES / 4) {
      this.#announced = this.#consumed;
      this.#port.sendWindow(this.id, this.#consumed);
    }
    return bytes;
  }
}

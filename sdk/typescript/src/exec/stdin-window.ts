/**
 * Standard input that the guest has not confirmed yet, numbered by byte and bounded.
 *
 *   push ──► [ base … end )  ──ack(offset)──► forgotten
 *
 * `base` is the first byte still held. It becomes known with the first attach: bytes of an earlier client may be in
 * front of ours. A writer waits while the window is full, so a guest that does not read slows its writer.
 */
import { PlatformError } from "@fluxvm/contracts";

export interface StdinChunk {
  readonly offset: number;
  readonly data: Buffer;
}

interface Held {
  /** Offset relative to our first byte. */
  readonly start: number;
  readonly data: Buffer;
}

export const STDIN_WINDOW_BYTES = 262_144;

export class StdinWindow {
  readonly #limit: number;
  #held: Held[] = [];
  #start = 0;
  #end = 0;
  #origin: number | undefined;
  #ended = false;
  #closed = false;
  #waiters: (() => void)[] = [];

  constructor(limit = STDIN_WINDOW_BYTES) {
    this.#limit = limit;
  }

  /** Bytes held. */
  get size(): number {
    return this.#end - this.#start;
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  /** Offset of the end of input, once `end` was called and the origin is known. */
  get endOffset(): number | undefined {
    return this.#ended && this.#origin !== undefined ? this.#origin + this.#end : undefined;
  }

  /**
   * Takes up to `limit` bytes from the front of `data` once there is room; the result is how many, 0 when closed.
   * @throws PlatformError `EXEC_STDIN_ENDED`
   */
  async push(data: Uint8Array): Promise<number> {
    while (!this.#closed && this.size >= this.#limit) await new Promise<void>((resolve) => this.#waiters.push(resolve));
    if (this.#closed || data.byteLength === 0) return 0;
    if (this.#ended) throw new PlatformError("EXEC_STDIN_ENDED", "Cannot write to the command: its standard input was already ended");
    const taken = Buffer.from(data.subarray(0, this.#limit - this.size)); // a copy: the caller may reuse its buffer
    this.#held.push({ start: this.#end, data: taken });
    this.#end += taken.length;
    return taken.length;
  }

  end(): void {
    this.#ended = true;
  }

  /** Nobody reads any more: writers go on with nothing taken. */
  close(): void {
    this.#closed = true;
    this.#held = [];
    this.#start = this.#end;
    this.#wake();
  }

  /**
   * The guest has everything before `offset`. The result is the position to send from again.
   * @throws PlatformError `DAEMON_PROTOCOL` when the guest has forgotten confirmed bytes or confirms bytes never written
   */
  attach(offset: number): number {
    this.#origin ??= offset;
    this.ack(offset);
    if (offset < this.#origin + this.#start) {
      throw new PlatformError("DAEMON_PROTOCOL", `The guest asks for input from byte ${offset}, which it had already confirmed`);
    }
    return this.#start;
  }

  ack(offset: number): void {
    if (this.#origin === undefined) return;
    const start = Math.max(this.#start, offset - this.#origin);
    if (start > this.#end)
      throw new PlatformError("DAEMON_PROTOCOL", `The guest confirms input up to byte ${offset}, which was never written`);
    this.#start = start;
    while (this.#held[0] !== undefined && this.#held[0].start + this.#held[0].data.length <= start) this.#held.shift();
    if (this.size < this.#limit) this.#wake();
  }

  /** Held bytes from position `start` on. Positions count from our first byte, offsets from the stream's. */
  from(start: number): readonly StdinChunk[] {
    const origin = this.#origin;
    if (origin === undefined) return [];
    return this.#held
      .filter((held) => held.start + held.data.length > start)
      .map((held) => {
        const skip = Math.max(0, start - held.start);
        return { offset: origin + held.start + skip, data: held.data.subarray(skip) };
      });
  }

  /** Position of the next byte to be pushed. */
  get position(): number {
    return this.#end;
  }

  #wake(): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const wake of waiters) wake();
  }
}

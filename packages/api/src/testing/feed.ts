/** Bytes that grow, and a wake-up for who waits for more. */
import { abortable } from "@fluxvm/core";

export class Feed {
  #bytes: Buffer = Buffer.alloc(0);
  #isEnded = false;
  #wake = Promise.withResolvers<void>();

  get isEnded(): boolean {
    return this.#isEnded;
  }

  get length(): number {
    return this.#bytes.length;
  }

  push(data: Uint8Array): void {
    this.#bytes = Buffer.concat([this.#bytes, data]);
    this.#notify();
  }

  end(): void {
    this.#isEnded = true;
    this.#notify();
  }

  from(position: number): Buffer {
    return this.#bytes.subarray(position);
  }

  text(): string {
    return this.#bytes.toString("utf8");
  }

  /** Resolves with the next push or end. */
  async next(signal: AbortSignal): Promise<void> {
    await abortable(this.#wake.promise, signal);
  }

  #notify(): void {
    this.#wake.resolve();
    this.#wake = Promise.withResolvers();
  }
}

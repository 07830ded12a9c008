/**
 * Output that arrived and waits for its reader: one reader, in order of arrival. Its size is bounded by whoever fills
 * it, who is told when it is drained; the guest sends no more than its window without an acknowledgement anyway.
 */
import type { OutputFrame } from "./frames.ts";

export class OutputQueue {
  readonly #chunks: OutputFrame[] = [];
  #size = 0;
  #end: { readonly error: Error | undefined } | undefined;
  #reader: (() => void) | undefined;
  #drained: { readonly below: number; readonly wake: () => void } | undefined;

  /** Bytes waiting. */
  get size(): number {
    return this.#size;
  }

  put(chunk: OutputFrame): void {
    if (this.#end !== undefined || chunk.data.length === 0) return;
    this.#chunks.push(chunk);
    this.#size += chunk.data.length;
    this.#wakeReader();
  }

  /** After what is queued the reader sees the end, or `error`. The first call counts. */
  end(error?: Error): void {
    this.#end ??= { error };
    this.#wakeReader();
    this.#drained?.wake();
  }

  /** The next chunk; `undefined` at the end. @throws the error it ended with */
  async take(): Promise<OutputFrame | undefined> {
    for (;;) {
      const chunk = this.#chunks.shift();
      if (chunk !== undefined) {
        this.#size -= chunk.data.length;
        if (this.#drained !== undefined && this.#size < this.#drained.below) this.#drained.wake();
        return chunk;
      }
      if (this.#end !== undefined) {
        if (this.#end.error !== undefined) throw this.#end.error;
        return undefined;
      }
      await new Promise<void>((resolve) => {
        this.#reader = resolve;
      });
    }
  }

  /** Resolves when fewer than `bytes` wait, or at the end. One caller at a time. */
  async waitBelow(bytes: number): Promise<void> {
    if (this.#size < bytes || this.#end !== undefined) return;
    await new Promise<void>((resolve) => {
      this.#drained = { below: bytes, wake: resolve };
    });
    this.#drained = undefined;
  }

  #wakeReader(): void {
    this.#reader?.();
    this.#reader = undefined;
  }
}

/** A counting semaphore with a bounded queue: how many imports run at a time. */
import { abortable, PlatformError } from "@fluxvm/core";

export class Slots {
  readonly #bound: number;
  readonly #waiting: (() => void)[] = [];
  #free: number;

  constructor(options: { readonly count: number; readonly maxWaiting: number }) {
    this.#free = options.count;
    this.#bound = options.maxWaiting;
  }

  /** Whether one more may wait. */
  hasRoom(): boolean {
    return this.#free > 0 || this.#waiting.length < this.#bound;
  }

  /** Runs `task` when a slot is free. @throws the signal's reason while waiting, `QUEUE_FULL` at the bound. */
  async run<T>(signal: AbortSignal, task: () => Promise<T>): Promise<T> {
    await this.#take(signal);
    try {
      return await task();
    } finally {
      this.#give();
    }
  }

  async #take(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#free > 0) {
      this.#free -= 1;
      return;
    }
    if (!this.hasRoom()) throw new PlatformError("QUEUE_FULL", "Too many imports wait", { retryAfterMs: 10_000 });
    const turn = Promise.withResolvers<void>();
    this.#waiting.push(turn.resolve);
    try {
      await abortable(turn.promise, signal);
    } catch (error) {
      const index = this.#waiting.indexOf(turn.resolve);
      if (index === -1) this.#give();
      else this.#waiting.splice(index, 1);
      throw error;
    }
  }

  #give(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free += 1;
    else next();
  }
}

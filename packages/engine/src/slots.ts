/** At most so many pieces of work at once; the others wait in order, a bounded number of them. */
import { PlatformError } from "@fluxvm/core";

export class Slots {
  readonly #bound: number;
  readonly #maxWaiting: number;
  readonly #what: string;
  readonly #waiting: (() => void)[] = [];
  #busy = 0;

  constructor(options: { readonly what: string; readonly count: number; readonly maxWaiting: number }) {
    this.#what = options.what;
    this.#bound = options.count;
    this.#maxWaiting = options.maxWaiting;
  }

  /** @throws PlatformError `QUEUE_FULL`; the signal's reason while waiting. */
  async run<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    await this.#acquire(signal);
    try {
      return await work();
    } finally {
      this.#release();
    }
  }

  async #acquire(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#busy < this.#bound) {
      this.#busy += 1;
      return;
    }
    if (this.#waiting.length >= this.#maxWaiting)
      throw new PlatformError("QUEUE_FULL", `Too many ${this.#what} wait`, { retryAfterMs: 1000 });
    await new Promise<void>((resolve, reject) => {
      const grant = (): void => {
        signal.removeEventListener("abort", onAbort);
        resolve();
      };
      const onAbort = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(grant), 1);
        reject(signal.reason as Error); // reasons are errors here
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.#waiting.push(grant);
    });
  }

  /** The slot goes straight to the next one waiting. */
  #release(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#busy -= 1;
    else next();
  }
}

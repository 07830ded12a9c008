/** Runs tasks of one key one after another, of different keys side by side. Each key's queue is bounded. */
import { PlatformError } from "./errors/platform-error.ts";

export class KeyedQueue {
  readonly #bound: number;
  readonly #tails = new Map<string, { tail: Promise<unknown>; length: number }>();

  constructor(options: { readonly boundPerKey: number }) {
    this.#bound = options.boundPerKey;
  }

  /** @throws PlatformError `QUEUE_FULL` when the key's queue is at its bound. */
  async run<T>(key: string, task: () => Promise<T>): Promise<T> {
    const entry = this.#tails.get(key) ?? { tail: Promise.resolve(), length: 0 };
    if (entry.length >= this.#bound) throw new PlatformError("QUEUE_FULL", `Too many requests wait for ${key}`, { retryAfterMs: 1000 });
    entry.length += 1;
    const result = entry.tail.then(task, task);
    entry.tail = result.catch(() => undefined);
    this.#tails.set(key, entry);
    try {
      return await result;
    } finally {
      entry.length -= 1;
      if (entry.length === 0) this.#tails.delete(key);
    }
  }
}

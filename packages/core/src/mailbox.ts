/**
 * A bounded first-in first-out queue with one reader: the inbox of a driver loop.
 * `post` refuses with `QUEUE_FULL` when the bound is reached, so that a caller sees the overload at once.
 */
import { assert } from "./assert.ts";
import { PlatformError } from "./errors/platform-error.ts";

export class Mailbox<Message> {
  readonly #bound: number;
  readonly #name: string;
  readonly #queue: Message[] = [];
  #waiting: ((message: Message | undefined) => void) | undefined;
  #closed = false;

  constructor(options: { readonly name: string; readonly bound: number }) {
    this.#name = options.name;
    this.#bound = options.bound;
  }

  get size(): number {
    return this.#queue.length;
  }

  /** @throws PlatformError `QUEUE_FULL` at the bound. Messages to a closed mailbox are dropped; the result tells. */
  post(message: Message): boolean {
    if (this.#closed) return false;
    if (this.#waiting !== undefined) {
      const deliver = this.#waiting;
      this.#waiting = undefined;
      deliver(message);
      return true;
    }
    if (this.#queue.length >= this.#bound) {
      throw new PlatformError("QUEUE_FULL", `Too many requests wait for ${this.#name}`, { retryAfterMs: 1000 });
    }
    this.#queue.push(message);
    return true;
  }

  /** Puts a message past the bound: for events that must not be lost, such as a process's end. */
  postUnbounded(message: Message): boolean {
    if (this.#closed) return false;
    if (this.#waiting !== undefined) return this.post(message);
    this.#queue.push(message);
    return true;
  }

  /** The next message; `undefined` once closed and empty. One reader at a time. */
  async take(): Promise<Message | undefined> {
    const next = this.#queue.shift();
    if (next !== undefined) return next;
    if (this.#closed) return undefined;
    assert(this.#waiting === undefined, `two readers of ${this.#name}`);
    return await new Promise((resolve) => {
      this.#waiting = resolve;
    });
  }

  /** No more messages are taken in; the reader drains what is queued. */
  close(): void {
    this.#closed = true;
    this.#waiting?.(undefined);
    this.#waiting = undefined;
  }
}

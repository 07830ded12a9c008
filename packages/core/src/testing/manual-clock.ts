/** A clock that only moves when a test says so. Timers fire in order of their time, then of their making. */
import type { Clock } from "../clock.ts";

interface Timer {
  readonly atMs: number;
  readonly order: number;
  readonly fire: () => void;
}

export class ManualClock implements Clock {
  #wallMs: number;
  #bootMs: number;
  #order = 0;
  #timers: Timer[] = [];

  constructor(options: { readonly wallMs?: number; readonly bootMs?: number } = {}) {
    this.#wallMs = options.wallMs ?? 1_700_000_000_000;
    this.#bootMs = options.bootMs ?? 1_000_000;
  }

  wallMs(): number {
    return this.#wallMs;
  }

  bootMs(): number {
    return this.#bootMs;
  }

  schedule(ms: number, callback: () => void): () => void {
    const timer: Timer = { atMs: this.#bootMs + Math.max(0, ms), order: (this.#order += 1), fire: callback };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((t) => t !== timer);
    };
  }

  async sleep(ms: number, options: { readonly signal?: AbortSignal | undefined } = {}): Promise<void> {
    options.signal?.throwIfAborted();
    await new Promise<void>((resolve, reject) => {
      const cancel = this.schedule(ms, resolve);
      options.signal?.addEventListener("abort", () => {
        cancel();
        reject(options.signal?.reason as Error); // reasons are errors here
      });
    });
  }

  /** Moves both clocks and lets everything that became due run, with its follow-up work. */
  async advance(ms: number): Promise<void> {
    const target = this.#bootMs + ms;
    for (;;) {
      const due = this.#timers.filter((t) => t.atMs <= target).sort((a, b) => a.atMs - b.atMs || a.order - b.order)[0];
      if (due === undefined) break;
      this.#timers = this.#timers.filter((t) => t !== due);
      this.#wallMs += due.atMs - this.#bootMs;
      this.#bootMs = due.atMs;
      due.fire();
      await settle();
    }
    this.#wallMs += target - this.#bootMs;
    this.#bootMs = target;
    await settle();
  }

  /** A step of the wall clock alone, as an administrator or NTP makes it. */
  stepWall(ms: number): void {
    this.#wallMs += ms;
  }

  get pendingTimers(): number {
    return this.#timers.length;
  }
}

/** Lets promise callbacks run, a bounded number of rounds. */
export async function settle(rounds = 20): Promise<void> {
  for (let i = 0; i < rounds; i += 1) await new Promise<void>((resolve) => setImmediate(resolve));
}

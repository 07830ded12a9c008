/** Retry with exponential backoff and a bound. Randomness and time are ports. */
import type { Clock } from "./clock.ts";
import type { Random } from "./random.ts";

export interface RetryOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly signal?: AbortSignal | undefined;
  readonly attempts: number;
  readonly firstDelayMs: number;
  readonly maxDelayMs: number;
  /** Whether this failure is worth another try. */
  readonly shouldRetry: (error: unknown) => boolean;
}

/** Full-jitter delay before attempt `attempt` (1 is the first retry). */
export function computeBackoffMs(attempt: number, options: Pick<RetryOptions, "firstDelayMs" | "maxDelayMs" | "random">): number {
  const cap = Math.min(options.maxDelayMs, options.firstDelayMs * 2 ** (attempt - 1));
  const [high = 0, low = 0] = options.random.bytes(2);
  return Math.round((cap * (high * 256 + low)) / 65_535);
}

export async function retry<T>(options: RetryOptions, work: (attempt: number) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await work(attempt);
    } catch (error) {
      if (attempt >= options.attempts || !options.shouldRetry(error)) throw error;
      await options.clock.sleep(computeBackoffMs(attempt, options), { signal: options.signal });
    }
  }
}

/** Deadlines over signals: one budget for a piece of work, however many calls it makes. */
import type { Clock } from "./clock.ts";
import { PlatformError } from "./errors/platform-error.ts";
import type { ErrorCode } from "./errors/catalogue.ts";

export interface DeadlineOptions {
  readonly clock: Clock;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
  /** Error when the time is over; default `DEADLINE_EXCEEDED`. */
  readonly code?: ErrorCode;
  /** What was being done, for the message: `Timed out after 500 ms: <what>`. */
  readonly what: string;
}

/**
 * Runs `work` with a signal that fires after `timeoutMs` or with the caller's own signal.
 * @throws PlatformError with `code` when the time is over, even if `work` ignores its signal; the caller's abort reason when that came first.
 */
export async function withDeadline<T>(options: DeadlineOptions, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const { clock, timeoutMs, signal: outer, what } = options;
  outer?.throwIfAborted();
  const controller = new AbortController();
  const timeout = new PlatformError(options.code ?? "DEADLINE_EXCEEDED", `Timed out after ${timeoutMs} ms: ${what}`);
  const onOuterAbort = (): void => controller.abort(outer?.reason);
  outer?.addEventListener("abort", onOuterAbort, { once: true });
  const cancelTimer = clock.schedule(timeoutMs, () => controller.abort(timeout));
  const aborted = new Promise<never>((_, reject) => {
    controller.signal.addEventListener("abort", () => reject(controller.signal.reason as Error), { once: true }); // reasons are errors here
  });
  try {
    return await Promise.race([work(controller.signal), aborted]);
  } finally {
    cancelTimer();
    outer?.removeEventListener("abort", onOuterAbort);
    aborted.catch(() => undefined);
  }
}

/** A promise that rejects with the signal's reason, raced against `promise`. */
export async function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return await promise;
  if (signal.aborted) promise.catch(() => undefined); // nobody else waits for it any more
  signal.throwIfAborted();
  let onAbort: () => void = () => undefined;
  const aborted = new Promise<never>((_, reject) => {
    onAbort = (): void => reject(signal.reason as Error); // reasons are errors here
    signal.addEventListener("abort", onAbort, { once: true });
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

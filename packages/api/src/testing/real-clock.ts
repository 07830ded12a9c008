/** The machine's time for tests that talk over real sockets. */
import type { Clock } from "@fluxvm/core";

export function createRealClock(): Clock {
  const schedule: Clock["schedule"] = (ms, callback) => {
    const timer = setTimeout(callback, ms);
    timer.unref();
    return () => clearTimeout(timer);
  };
  return {
    wallMs: () => Date.now(),
    bootMs: () => performance.now(),
    schedule,
    sleep: async (ms, { signal } = {}) => {
      signal?.throwIfAborted();
      await new Promise<void>((resolve, reject) => {
        const timer = setTimeout(resolve, ms);
        timer.unref(); // a guest's sleeping command does not keep a test alive
        signal?.addEventListener("abort", () => {
          clearTimeout(timer);
          reject(signal.reason as Error); // reasons are errors here
        });
      });
    },
  };
}

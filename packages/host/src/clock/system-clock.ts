/**
 * The operating system's clock. Boot time counts suspended time, which Node's monotonic clock does not, so the distance
 * between the two is measured from /proc/uptime and measured again when the two drift apart (after a suspend).
 */
import { readFileSync } from "node:fs";
import { performance } from "node:perf_hooks";
import type { Clock } from "@fluxvm/core";

/** A wait longer than this is cut into parts, since the distance may have changed meanwhile. */
const MAX_TIMER_MS = 30_000;
/** How often the distance is looked at, at most. */
const CHECK_EVERY_MS = 1000;
/** /proc/uptime has a resolution of 10 ms: smaller differences are noise. */
const NOISE_MS = 25;

function readUptimeMs(): number {
  const [seconds = ""] = readFileSync("/proc/uptime", "utf8").split(" ");
  return Number(seconds) * 1000;
}

class SystemClock implements Clock {
  #offsetMs = readUptimeMs() - performance.now();
  #checkedAtMs = performance.now();
  #lastMs = 0;

  wallMs(): number {
    return Date.now();
  }

  bootMs(): number {
    const now = performance.now();
    if (now - this.#checkedAtMs > CHECK_EVERY_MS) {
      this.#checkedAtMs = now;
      const offset = readUptimeMs() - now;
      if (Math.abs(offset - this.#offsetMs) > NOISE_MS) this.#offsetMs = offset;
    }
    this.#lastMs = Math.max(this.#lastMs, now + this.#offsetMs);
    return this.#lastMs;
  }

  async sleep(ms: number, options: { readonly signal?: AbortSignal | undefined } = {}): Promise<void> {
    const { signal } = options;
    signal?.throwIfAborted();
    await new Promise<void>((resolve, reject) => {
      const onAbort = (): void => {
        cancel();
        reject(signal?.reason as Error); // reasons are errors here
      };
      const cancel = this.schedule(ms, () => {
        signal?.removeEventListener("abort", onAbort);
        resolve();
      });
      signal?.addEventListener("abort", onAbort, { once: true });
    });
  }

  schedule(ms: number, callback: () => void): () => void {
    const dueMs = this.bootMs() + ms;
    let timer: NodeJS.Timeout;
    const arm = (leftMs: number): void => {
      timer = setTimeout(
        () => {
          const left = dueMs - this.bootMs();
          if (left > 0.5) arm(left);
          else callback();
        },
        Math.min(MAX_TIMER_MS, Math.max(0, leftMs)),
      );
    };
    arm(ms);
    return () => clearTimeout(timer);
  }
}

export const systemClock: Clock = new SystemClock();

/** The id the kernel drew at this boot. */
export function readBootId(): string {
  return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
}

/**
 * When a VM expires. Within one boot of the host the boot-time clock counts, so no step of the wall clock shortens or
 * lengthens a time to live; across a reboot the wall clock is all there is.
 */
import type { Clock } from "@fluxvm/core";

export interface Deadline {
  readonly expiresAtWallMs: number;
  readonly bootId: string;
  readonly expiresAtBootMs: number;
}

export interface Now {
  readonly bootId: string;
  readonly bootMs: number;
  readonly wallMs: number;
}

export function readNow(clock: Clock, bootId: string): Now {
  return { bootId, bootMs: clock.bootMs(), wallMs: clock.wallMs() };
}

export function computeDeadline(ttlMs: number, now: Now): Deadline {
  return { expiresAtWallMs: now.wallMs + ttlMs, bootId: now.bootId, expiresAtBootMs: now.bootMs + ttlMs };
}

/** Zero or less: expired. */
export function computeRemainingMs(deadline: Deadline, now: Now): number {
  return deadline.bootId === now.bootId ? deadline.expiresAtBootMs - now.bootMs : deadline.expiresAtWallMs - now.wallMs;
}

/** The same moment on this boot's clock. A deadline of this boot is left as it is. */
export function rebaseDeadline(deadline: Deadline, now: Now): Deadline {
  if (deadline.bootId === now.bootId) return deadline;
  return { ...deadline, bootId: now.bootId, expiresAtBootMs: now.bootMs + computeRemainingMs(deadline, now) };
}

/** For people: the stored wall time, or where the boot clock says it is when the wall clock was stepped since. */
export function computeExpiryWallMs(deadline: Deadline, now: Now): number {
  const expected = now.wallMs + computeRemainingMs(deadline, now);
  return Math.abs(expected - deadline.expiresAtWallMs) < 1000 ? deadline.expiresAtWallMs : expected;
}

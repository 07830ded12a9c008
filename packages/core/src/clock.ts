/**
 * Time as a port. Deadlines run on `bootMs`, which no clock step moves; `wallMs` is for people and across reboots.
 * The system clock lives in `@fluxvm/host`; `@fluxvm/core/testing` has one that a test moves by hand.
 */
export interface Clock {
  /** Milliseconds since the Unix epoch. May jump either way. */
  wallMs(): number;
  /** Milliseconds since the host booted, suspended time included. Never goes back, unknown across boots. */
  bootMs(): number;
  /** Settles after `ms` of boot time, or rejects with the signal's reason. */
  sleep(ms: number, options?: { readonly signal?: AbortSignal | undefined }): Promise<void>;
  /** Calls `callback` once after `ms` of boot time; the result cancels it. */
  schedule(ms: number, callback: () => void): () => void;
}

/** What every call that can wait takes. */
export interface CallOptions {
  readonly signal: AbortSignal;
}

/** Programmer errors: a failed assertion is a bug of ours and stops the smallest owner that may be corrupt. */

export class AssertionError extends Error {
  override readonly name = "AssertionError";
}

export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new AssertionError(message);
}

/** Ends an exhaustive `switch`: the compiler proves that it is never reached. */
export function assertNever(value: never, what = "variant"): never {
  throw new AssertionError(`unexpected ${what}: ${JSON.stringify(value)}`);
}

/** Digests of what things are made from. */
import { createHash } from "node:crypto";

/** Raise when the way of making a disk changes, so that old and new are told apart. */
export const FORMAT_VERSION = 1;

/** `sha256:…` over a JSON value whose key order is fixed by its writer. */
export function digestOfInputs(inputs: Readonly<Record<string, unknown>>): string {
  const hash = createHash("sha256").update(JSON.stringify({ format: FORMAT_VERSION, ...inputs }));
  return `sha256:${hash.digest("hex")}`;
}

export function isDigest(value: unknown): value is string {
  return typeof value === "string" && /^sha256:[0-9a-f]{64}$/.test(value);
}

/** One thing to copy, as found by walking the source. Paths are relative to what is being copied; "" is that itself. */
export type CopyEntry =
  | { readonly kind: "directory"; readonly path: string; readonly mode: number }
  | { readonly kind: "file"; readonly path: string; readonly mode: number; readonly bytes: number }
  | { readonly kind: "symlink"; readonly path: string; readonly target: string };

export interface CopyPlan {
  /** Parents before their children; links last, so that nothing is ever written through one. */
  readonly entries: readonly CopyEntry[];
  readonly totalBytes: number;
  /** Sockets, pipes and devices, which are not copied. */
  readonly skipped: readonly string[];
}

/** A copy of more entries than this is refused: use a tar stream through `exec`. */
export const MAX_ENTRIES = 200_000;

export function planCopy(entries: readonly CopyEntry[], skipped: readonly string[]): CopyPlan {
  const links = entries.filter((entry) => entry.kind === "symlink");
  const rest = entries.filter((entry) => entry.kind !== "symlink");
  const totalBytes = rest.reduce((sum, entry) => sum + (entry.kind === "file" ? entry.bytes : 0), 0);
  return { entries: [...rest, ...links], totalBytes, skipped };
}

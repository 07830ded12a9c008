/** What is stored of an image or kernel, and how it is read back. */

export type ObjectState = "importing" | "ready" | "failed";

/** `Content` describes the files of a ready object; its `digest` names their directory. */
export interface ObjectRecord<Content> {
  readonly id: string;
  readonly name: string;
  readonly source: string;
  /** Equal for requests that mean the same; see `ImportPlan`. */
  readonly requestKey: string;
  readonly state: ObjectState;
  readonly error?: { readonly code: string; readonly message: string };
  readonly content?: Content;
  readonly createdAtMs: number;
}

/** `undefined` for anything that is no record: a damaged row must not stop the daemon. */
export function parseRecord<Content extends { readonly digest: string }>(value: unknown): ObjectRecord<Content> | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const row = value as Partial<Record<keyof ObjectRecord<Content>, unknown>>; // each field is looked at below
  for (const field of ["id", "name", "source", "requestKey"] as const) if (typeof row[field] !== "string") return undefined;
  if (typeof row.createdAtMs !== "number") return undefined;
  if (row.state !== "importing" && row.state !== "ready" && row.state !== "failed") return undefined;
  const content = row.content as { readonly digest?: unknown } | undefined; // its digest is looked at next
  if (row.state === "ready" && typeof content?.digest !== "string") return undefined;
  return value as ObjectRecord<Content>; // written by us, its outline checked above
}

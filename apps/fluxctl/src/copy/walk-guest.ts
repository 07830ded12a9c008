/**
 * Walks a file or directory of a guest. The guest is not trusted: a name that would lead out of its directory ends
 * the copy, and so does a tree without end.
 */
import { posix } from "node:path";
import { PlatformError } from "@fluxvm/core";
import type { Client, FileStat } from "@fluxvm/sdk";
import { MAX_ENTRIES, planCopy, type CopyEntry, type CopyPlan } from "./entry.ts";

export interface GuestRoot {
  readonly client: Client;
  readonly vm: string;
  readonly path: string;
  readonly signal: AbortSignal;
}

export async function walkGuest({ client, vm, path: root, signal }: GuestRoot): Promise<CopyPlan> {
  const entries: CopyEntry[] = [];
  const skipped: string[] = [];
  const top = await followTop({ client, vm, path: root, signal });
  const pending: { readonly path: string; readonly stat: FileStat }[] = [{ path: "", stat: top }];
  for (let next = pending.shift(); next !== undefined; next = pending.shift()) {
    if (entries.length >= MAX_ENTRIES) throw new PlatformError("REQUEST_INVALID", `Cannot copy ${root}: more than ${MAX_ENTRIES} entries`);
    const { path, stat } = next;
    const entry = toEntry(path, stat);
    if (entry === undefined) skipped.push(posix.join(root, path));
    else entries.push(entry);
    if (entry?.kind !== "directory") continue;
    const children = await client.files.list(vm, posix.join(root, path), { signal });
    for (const child of children) pending.push({ path: posix.join(path, requireName(child, posix.join(root, path))), stat: child });
  }
  return planCopy(entries, skipped);
}

/** What the path itself names, through a link if it is one. */
async function followTop({ client, vm, path, signal }: GuestRoot): Promise<FileStat> {
  const stat = await client.files.stat(vm, path, { signal });
  if (stat.type !== "symlink" || stat.target === undefined) return stat;
  return await client.files.stat(vm, posix.resolve(posix.dirname(path), stat.target), { signal });
}

function toEntry(path: string, stat: FileStat): CopyEntry | undefined {
  const mode = stat.mode & 0o7777;
  switch (stat.type) {
    case "directory":
      return { kind: "directory", path, mode };
    case "file":
      return { kind: "file", path, mode, bytes: stat.size };
    case "symlink":
      return { kind: "symlink", path, target: stat.target ?? "" };
    case "other":
      return undefined;
  }
}

/** The last part of a listed path, if it can only mean an entry of its own directory. */
export function requireName(stat: Pick<FileStat, "path">, directory: string): string {
  const name = stat.path.slice(stat.path.lastIndexOf("/") + 1);
  if (name === "" || name === "." || name === ".." || name.includes("\0")) {
    throw new PlatformError("AGENT_PROTOCOL", `Cannot copy ${directory}: the guest lists an entry without a usable name`);
  }
  return name;
}

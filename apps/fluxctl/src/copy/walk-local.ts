/** Walks a local file or directory, following no link below its top. */
import { lstat, readdir, readlink, stat } from "node:fs/promises";
import { join } from "node:path";
import { PlatformError } from "@fluxvm/core";
import { MAX_ENTRIES, planCopy, type CopyEntry, type CopyPlan } from "./entry.ts";

export async function walkLocal(root: string): Promise<CopyPlan> {
  const entries: CopyEntry[] = [];
  const skipped: string[] = [];
  const pending = [""];
  for (let path = pending.shift(); path !== undefined; path = pending.shift()) {
    if (entries.length >= MAX_ENTRIES) throw new PlatformError("REQUEST_INVALID", `Cannot copy ${root}: more than ${MAX_ENTRIES} entries`);
    const full = join(root, path);
    const stats = path === "" ? await stat(full) : await lstat(full);
    const mode = stats.mode & 0o7777;
    if (stats.isDirectory()) {
      entries.push({ kind: "directory", path, mode });
      for (const name of (await readdir(full)).sort()) pending.push(join(path, name));
    } else if (stats.isFile()) {
      entries.push({ kind: "file", path, mode, bytes: stats.size });
    } else if (stats.isSymbolicLink()) {
      entries.push({ kind: "symlink", path, target: await readlink(full) });
    } else {
      skipped.push(full);
    }
  }
  return planCopy(entries, skipped);
}

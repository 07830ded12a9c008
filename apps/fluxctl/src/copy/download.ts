/**
 * From a guest to here. The guest decides names and contents, so nothing is ever written through a link that lies
 * below the target: links are made last, and a directory that is in the way as a link ends the copy.
 */
import { createWriteStream } from "node:fs";
import { chmod, lstat, mkdir, rename, rm, stat, symlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { PlatformError } from "@fluxvm/core";
import { countBytes } from "./count-bytes.ts";
import type { CopyEntry } from "./entry.ts";
import type { Copy, CopyResult } from "./upload.ts";
import { walkGuest } from "./walk-guest.ts";

/** Permissions are kept, but nothing set-uid or set-gid comes out of a guest. */
const MODE_MASK = 0o777;

export async function download(copy: Copy): Promise<CopyResult> {
  const plan = await walkGuest({ ...copy, path: copy.from });
  const target = await chooseTarget(copy);
  const count = countBytes(copy.progress, plan.totalBytes);
  for (const entry of plan.entries) await takeEntry(copy, { entry, target, count });
  // A read-only directory can only get its mode once it is full.
  for (const entry of plan.entries.toReversed()) {
    if (entry.kind === "directory") await chmod(join(target, entry.path), entry.mode & MODE_MASK);
  }
  return { target, files: plan.entries.filter((entry) => entry.kind === "file").length, bytes: count.total(), skipped: plan.skipped };
}

async function chooseTarget(copy: Copy): Promise<string> {
  const there = await stat(copy.to).catch(() => undefined); // not there: it is the name itself
  if (there?.isDirectory() === true || copy.to.endsWith("/")) return join(copy.to, basename(copy.from) || copy.vm);
  return copy.to;
}

interface Take {
  readonly entry: CopyEntry;
  readonly target: string;
  readonly count: ReturnType<typeof countBytes>;
}

async function takeEntry(copy: Copy, { entry, target, count }: Take): Promise<void> {
  const path = join(target, entry.path);
  switch (entry.kind) {
    case "directory":
      return await makeDirectory(path, entry.path === "");
    case "file":
      return await takeFile(copy, {
        from: entry.path === "" ? copy.from : `${copy.from}/${entry.path}`,
        path,
        mode: entry.mode & MODE_MASK,
        count,
      });
    case "symlink":
      await rm(path, { force: true });
      return await symlink(entry.target, path);
  }
}

async function makeDirectory(path: string, isTop: boolean): Promise<void> {
  const there = isTop ? await stat(path).catch(() => undefined) : await lstat(path).catch(() => undefined); // not there: it is made
  if (there === undefined) await mkdir(path, { recursive: isTop, mode: 0o700 });
  else if (!there.isDirectory()) throw new PlatformError("LOCAL_FILE_FAILED", `Cannot copy to ${path}: it is there and is no directory`);
}

interface FileTake {
  readonly from: string;
  readonly path: string;
  readonly mode: number;
  readonly count: ReturnType<typeof countBytes>;
}

/** Whole or not at all: the bytes go beside the target first. */
async function takeFile(copy: Copy, take: FileTake): Promise<void> {
  const temporary = join(dirname(take.path), `.${basename(take.path).slice(0, 200)}.fluxctl-part`);
  const file = await copy.client.files.read(copy.vm, take.from, { signal: copy.signal });
  try {
    await rm(temporary, { force: true });
    await pipeline(take.count.through(file.content), createWriteStream(temporary, { flags: "wx", mode: take.mode }));
    await chmod(temporary, take.mode);
    await rename(temporary, take.path);
  } catch (error) {
    file.content.destroy();
    await rm(temporary, { force: true });
    throw error;
  }
}

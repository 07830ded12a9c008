/** Files that survive a crash of the machine, and folders that only their owner can look into. */
import { randomBytes } from "node:crypto";
import { chmod, chown, lstat, mkdir, open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { PlatformError } from "@fluxvm/core";

/** Replaces `path` in one step: after a crash it holds the old bytes or all of the new ones. */
export async function writeFileDurable(path: string, data: string | Uint8Array, options: { readonly mode?: number } = {}): Promise<void> {
  const temporary = `${path}.${randomBytes(6).toString("hex")}.tmp`;
  try {
    const file = await open(temporary, "wx", options.mode ?? 0o600);
    try {
      await file.writeFile(data);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw toFileError(error, `write ${path}`);
  }
  await fsyncDir(dirname(path));
}

/** Makes renames, creations and removals in the folder durable. */
export async function fsyncDir(path: string): Promise<void> {
  const dir = await open(path, "r");
  try {
    await dir.sync();
  } finally {
    await dir.close();
  }
}

export interface PrivateDirOptions {
  readonly uid: number;
  readonly gid: number;
  readonly mode: number;
}

/** Idempotent. A symbolic link or a file in its place is refused. The parent must exist. */
export async function ensurePrivateDir(path: string, options: PrivateDirOptions): Promise<void> {
  try {
    await mkdir(path, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw toFileError(error, `make folder ${path}`); // node:fs rejects with these
  }
  const stat = await lstat(path);
  if (!stat.isDirectory()) throw new PlatformError("STATE_DIR_UNUSABLE", `Cannot make folder ${path}: something else is there`);
  if (stat.uid !== options.uid || stat.gid !== options.gid) await chown(path, options.uid, options.gid);
  await chmod(path, options.mode);
}

/** A failed file operation in words: no space is told apart. */
export function toFileError(error: unknown, what: string): PlatformError {
  const { code } = error as NodeJS.ErrnoException; // node:fs rejects with these
  if (code === "ENOSPC" || code === "EDQUOT")
    return new PlatformError("HOST_OUT_OF_SPACE", `Cannot ${what}: the disk is full`, { cause: error });
  return new PlatformError("STATE_DIR_UNUSABLE", `Cannot ${what}: ${code ?? "failed"}`, { cause: error });
}

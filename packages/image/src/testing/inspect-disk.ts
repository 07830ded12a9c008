/** Looks into an ext4 file without mounting it, for tests: e2fsck for soundness, debugfs for content. */
import { runTool } from "@fluxvm/host";

export interface DiskEntry {
  readonly inode: number;
  /** Octal, with the type: `100644`, `40755`. */
  readonly mode: string;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
}

async function run(command: string, args: readonly string[]): Promise<string> {
  const { stdout } = await runTool({ command, args, timeoutMs: 120_000, signal: new AbortController().signal });
  return stdout;
}

/** @throws when the file system has any error */
export async function checkDisk(path: string): Promise<void> {
  await run("e2fsck", ["-f", "-n", path]);
}

export async function listDisk(path: string, directory: string): Promise<ReadonlyMap<string, DiskEntry>> {
  const entries = new Map<string, DiskEntry>();
  for (const line of (await run("debugfs", ["-R", `ls -p ${directory}`, path])).split("\n")) {
    const [, inode, mode, uid, gid, name, size] = line.split("/");
    if (name === undefined || name === "" || name === "." || name === ".." || name === "lost+found") continue;
    entries.set(name, {
      inode: Number(inode),
      mode: String(mode).replace(/^0+/, ""),
      uid: Number(uid),
      gid: Number(gid),
      size: Number(size),
    });
  }
  return entries;
}

export async function readDiskFile(path: string, file: string): Promise<string> {
  return await run("debugfs", ["-R", `cat ${file}`, path]);
}

/** What `debugfs stat` prints: times, links, flags, extended attributes, a short link's target. */
export async function statDisk(path: string, file: string): Promise<string> {
  return await run("debugfs", ["-R", `stat ${file}`, path]);
}

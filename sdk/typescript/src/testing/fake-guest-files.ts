/** The files of a pretended guest, in memory, with the routes' answers. */
import { PlatformError, type FileStat } from "@fluxvm/contracts";

interface Entry {
  readonly type: "file" | "directory" | "symlink";
  readonly data: Buffer;
  readonly mode: number;
  readonly target?: string;
}

export class FakeGuestFiles {
  readonly #entries = new Map<string, Entry>([
    ["/", { type: "directory", data: Buffer.alloc(0), mode: 0o755 }],
    ["/tmp", { type: "directory", data: Buffer.alloc(0), mode: 0o1777 }],
    ["/etc", { type: "directory", data: Buffer.alloc(0), mode: 0o755 }],
    ["/etc/hostname", { type: "file", data: Buffer.from("fake\n"), mode: 0o644 }],
  ]);

  stat(path: string): FileStat {
    const entry = this.#require(path);
    return {
      path,
      type: entry.type,
      size: entry.data.length,
      mode: entry.mode,
      uid: 0,
      gid: 0,
      modified_at: "2026-01-02T03:04:05.000Z",
      ...(entry.target === undefined ? {} : { target: entry.target }),
    };
  }

  read(path: string): Buffer {
    const entry = this.#require(path);
    if (entry.type !== "file") throw new PlatformError("GUEST_FILE_INVALID", `Cannot read ${path}: it is a ${entry.type}`);
    return entry.data;
  }

  write(path: string, data: Buffer, options: { readonly mode?: number | undefined; readonly parents?: boolean | undefined }): FileStat {
    if (this.#entries.get(path)?.type === "directory")
      throw new PlatformError("GUEST_FILE_INVALID", `Cannot write ${path}: it is a directory`);
    this.#requireParent(path, options.parents === true);
    this.#entries.set(path, { type: "file", data, mode: options.mode ?? 0o644 });
    return this.stat(path);
  }

  link(path: string, target: string): void {
    this.#requireParent(path, false);
    this.#entries.set(path, { type: "symlink", data: Buffer.alloc(0), mode: 0o777, target });
  }

  list(path: string): FileStat[] {
    if (this.#require(path).type !== "directory") throw new PlatformError("GUEST_FILE_INVALID", `Cannot list ${path}: it is no directory`);
    return [...this.#entries.keys()]
      .filter((name) => name !== "/" && parentOf(name) === path)
      .sort()
      .map((name) => this.stat(name));
  }

  makeDirectory(path: string, options: { readonly parents?: boolean; readonly mode?: number }): void {
    const there = this.#entries.get(path);
    if (there?.type === "directory" && options.parents === true) return;
    if (there !== undefined) throw new PlatformError("GUEST_FILE_EXISTS", `Cannot make ${path}: it exists`);
    this.#requireParent(path, options.parents === true);
    this.#entries.set(path, { type: "directory", data: Buffer.alloc(0), mode: options.mode ?? 0o755 });
  }

  rename(from: string, to: string): void {
    const entry = this.#require(from);
    this.#requireParent(to, false);
    this.#entries.set(to, entry);
    this.#entries.delete(from);
  }

  remove(path: string, recursive: boolean): void {
    this.#require(path);
    const below = [...this.#entries.keys()].filter((name) => name.startsWith(`${path}/`));
    if (below.length > 0 && !recursive) throw new PlatformError("GUEST_FILE_INVALID", `Cannot remove ${path}: the directory is not empty`);
    for (const name of [path, ...below]) this.#entries.delete(name);
  }

  #require(path: string): Entry {
    const entry = this.#entries.get(path);
    if (entry === undefined) throw new PlatformError("GUEST_FILE_NOT_FOUND", `There is no ${path} in the guest`);
    return entry;
  }

  #requireParent(path: string, make: boolean): void {
    const parent = parentOf(path);
    if (this.#entries.get(parent)?.type === "directory") return;
    if (!make) throw new PlatformError("GUEST_FILE_NOT_FOUND", `There is no ${parent} in the guest`);
    this.makeDirectory(parent, { parents: true });
  }
}

function parentOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/")) || "/";
}

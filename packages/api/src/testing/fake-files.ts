/** The file system of a fake guest: a map of absolute paths, with the errors a real one gives. */
import type { FileEvent, FileStat } from "@fluxvm/contracts";
import { PlatformError, type Clock } from "@fluxvm/core";
import { Feed } from "./feed.ts";

interface Entry {
  readonly type: "file" | "directory";
  readonly content: Buffer;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly modifiedMs: number;
}

export interface FileAttributes {
  readonly mode?: number | undefined;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  readonly createParents?: boolean | undefined;
}

export class FakeFiles {
  readonly #clock: Clock;
  readonly #entries = new Map<string, Entry>();
  readonly #watches = new Set<{ readonly directory: string; readonly events: FileEvent[]; readonly wake: Feed }>();

  constructor(clock: Clock) {
    this.#clock = clock;
    for (const path of ["/", "/tmp", "/etc", "/root"]) this.#put(path, { type: "directory", mode: 0o755 });
    this.#put("/etc/hostname", { type: "file", mode: 0o644, content: Buffer.from("fake\n") });
  }

  findContent(path: string): Uint8Array | undefined {
    const entry = this.#entries.get(normalize(path));
    return entry?.type === "file" ? entry.content : undefined;
  }

  stat(path: string): FileStat {
    const entry = this.#require(path);
    return {
      path,
      type: entry.type,
      size: entry.content.length,
      mode: entry.mode,
      uid: entry.uid,
      gid: entry.gid,
      modified_at: new Date(entry.modifiedMs).toISOString(),
    };
  }

  read(
    path: string,
    range: { readonly offset?: number | undefined; readonly length?: number | undefined },
  ): { readonly stat: FileStat; readonly content: AsyncIterable<Uint8Array> } {
    const stat = this.stat(path);
    if (stat.type !== "file") throw new PlatformError("GUEST_FILE_INVALID", `${path} is a directory`);
    const start = range.offset ?? 0;
    const bytes = this.#require(path).content.subarray(start, range.length === undefined ? undefined : start + range.length);
    return { stat, content: chunked(bytes) };
  }

  /** Takes everything before anything changes, so that a broken upload leaves the old content. */
  async write(path: string, content: AsyncIterable<Uint8Array>, attributes: FileAttributes): Promise<FileStat> {
    this.#checkWritable(path, attributes.createParents ?? false);
    const chunks: Uint8Array[] = [];
    for await (const chunk of content) chunks.push(Buffer.from(chunk));
    if (attributes.createParents === true) this.makeDirectory(parentOf(normalize(path)), { parents: true });
    const existed = this.#entries.has(normalize(path));
    const { mode, uid, gid } = attributes;
    this.#put(path, { type: "file", content: Buffer.concat(chunks), mode: mode ?? 0o644, uid, gid });
    this.#notify(path, existed ? "modified" : "created");
    return this.stat(path);
  }

  list(path: string): readonly FileStat[] {
    if (this.stat(path).type !== "directory") throw new PlatformError("GUEST_FILE_INVALID", `${path} is not a directory`);
    const directory = normalize(path);
    const names = [...this.#entries.keys()].filter((p) => p !== "/" && parentOf(p) === directory);
    return names.toSorted().map((p) => this.stat(p));
  }

  makeDirectory(path: string, request: { readonly parents: boolean; readonly mode?: number | undefined }): void {
    const target = normalize(path);
    const existing = this.#entries.get(target);
    if (existing !== undefined) {
      if (request.parents && existing.type === "directory") return;
      throw new PlatformError("GUEST_FILE_EXISTS", `${path} exists`);
    }
    const parent = parentOf(target);
    if (request.parents) this.makeDirectory(parent, { parents: true });
    if (this.stat(parent).type !== "directory") throw new PlatformError("GUEST_FILE_INVALID", `${parent} is not a directory`);
    this.#put(target, { type: "directory", mode: request.mode ?? 0o755 });
    this.#notify(target, "created");
  }

  rename(from: string, to: string): void {
    const source = normalize(from);
    const target = normalize(to);
    this.#require(source);
    this.stat(parentOf(target));
    for (const [path, entry] of [...this.#entries]) {
      if (path !== source && !path.startsWith(`${source}/`)) continue;
      this.#entries.delete(path);
      this.#entries.set(target + path.slice(source.length), entry);
    }
    this.#notify(source, "moved_from");
    this.#notify(target, "moved_to");
  }

  remove(path: string, recursive: boolean): void {
    const target = normalize(path);
    this.#require(target);
    const inside = [...this.#entries.keys()].filter((p) => p.startsWith(`${target}/`));
    if (inside.length > 0 && !recursive) throw new PlatformError("GUEST_FILE_INVALID", `${path} is not empty`);
    for (const p of [...inside, target]) this.#entries.delete(p);
    this.#notify(target, "removed");
  }

  async *watch(path: string, signal: AbortSignal): AsyncGenerator<FileEvent, void, undefined> {
    this.stat(path);
    const watch = { directory: normalize(path), events: [] as FileEvent[], wake: new Feed() };
    this.#watches.add(watch);
    try {
      for (;;) {
        const event = watch.events.shift();
        if (event === undefined) await watch.wake.next(signal);
        else yield event;
      }
    } finally {
      this.#watches.delete(watch);
    }
  }

  #notify(path: string, type: FileEvent["type"]): void {
    const target = normalize(path);
    for (const watch of this.#watches) {
      if (parentOf(target) !== watch.directory && target !== watch.directory) continue;
      watch.events.push({ type, name: target.split("/").at(-1) ?? "" });
      watch.wake.push(Buffer.alloc(0));
    }
  }

  #checkWritable(path: string, createParents: boolean): void {
    const target = normalize(path);
    if (this.#entries.get(target)?.type === "directory") throw new PlatformError("GUEST_FILE_INVALID", `${path} is a directory`);
    const parent = this.#entries.get(parentOf(target));
    if (parent === undefined && !createParents)
      throw new PlatformError("GUEST_FILE_NOT_FOUND", `There is no directory ${parentOf(target)}`);
    if (parent?.type === "file") throw new PlatformError("GUEST_FILE_INVALID", `${parentOf(target)} is not a directory`);
  }

  #put(
    path: string,
    entry: {
      readonly type: Entry["type"];
      readonly mode: number;
      readonly content?: Buffer;
      readonly uid?: number | undefined;
      readonly gid?: number | undefined;
    },
  ): void {
    const { type, mode, content = Buffer.alloc(0), uid = 0, gid = 0 } = entry;
    this.#entries.set(normalize(path), { type, mode, content, uid, gid, modifiedMs: this.#clock.wallMs() });
  }

  #require(path: string): Entry {
    const entry = this.#entries.get(normalize(path));
    if (entry === undefined) throw new PlatformError("GUEST_FILE_NOT_FOUND", `There is no file ${path}`);
    return entry;
  }
}

function normalize(path: string): string {
  const parts: string[] = [];
  for (const part of path.split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return `/${parts.join("/")}`;
}

function parentOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/")) || "/";
}

async function* chunked(bytes: Buffer): AsyncGenerator<Uint8Array, void, undefined> {
  for (let at = 0; at < bytes.length; at += 65_536) yield bytes.subarray(at, at + 65_536);
}

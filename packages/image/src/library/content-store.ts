/**
 * Files of finished objects, one directory per digest: `<root>/<hex>/…` with a `meta.json`. A directory appears by
 * rename, whole and fsynced, and never changes again.
 *
 *   absent ── ensure(build) ──> present, held ── hold released ──> present ── collect, nobody refers ──> absent
 *
 * One digest is built by one import at a time; others wait and find it there. A hold keeps what an import has just
 * found or made until its record refers to it. What a crash left in `<tmp>` is removed by listing at start.
 */
import { chmod, mkdir, open, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { abortable, KeyedQueue, type Random, randomHex } from "@fluxvm/core";
import { fsyncDir } from "@fluxvm/host";

export interface HeldContent<Meta> {
  readonly directory: string;
  readonly meta: Meta;
  /** Gives up the hold; the files go if no record refers to them. */
  release(): Promise<void>;
}

export interface ContentStoreOptions {
  readonly root: string;
  readonly tmp: string;
  readonly random: Random;
  /** Whether a record refers to the digest. */
  readonly isReferenced: (digest: string) => boolean;
}

const META_FILE = "meta.json";
const HEX = /^[0-9a-f]{64}$/;

export class ContentStore {
  readonly #options: ContentStoreOptions;
  readonly #queue = new KeyedQueue({ boundPerKey: 256 });
  readonly #holds = new Map<string, number>();

  constructor(options: ContentStoreOptions) {
    this.#options = options;
  }

  directoryOf(digest: string): string {
    return join(this.#options.root, hexOf(digest));
  }

  /** Makes the directories and removes every finished directory that no record refers to, and all of `tmp`. */
  async start(): Promise<void> {
    const { root, tmp } = this.#options;
    await makeTraversable(root);
    await rm(tmp, { recursive: true, force: true });
    await makeTraversable(tmp);
    for (const name of await readdir(root)) {
      const keep = HEX.test(name) && this.#options.isReferenced(`sha256:${name}`) && (await this.#readMeta(join(root, name))) !== undefined;
      if (!keep) await rm(join(root, name), { recursive: true, force: true });
    }
  }

  /** Whether the digest's files are there. */
  async has(digest: string): Promise<boolean> {
    return (await this.#readMeta(this.directoryOf(digest))) !== undefined;
  }

  /** A new directory under `tmp`, for one import. */
  async makeTemporary(label: string): Promise<string> {
    const path = join(this.#options.tmp, `${label}-${randomHex(this.#options.random, 6)}`);
    await makeTraversable(path);
    return path;
  }

  /** The digest's files, made by `build` in an empty directory if they are not there. `build` resolves with the meta. */
  async ensure<Meta>(digest: string, signal: AbortSignal, build: (directory: string) => Promise<Meta>): Promise<HeldContent<Meta>> {
    this.#holds.set(digest, (this.#holds.get(digest) ?? 0) + 1);
    try {
      const work = this.#queue.run(digest, async () => await this.#buildUnlessThere(digest, signal, build));
      const meta = await abortable(work, signal);
      return { directory: this.directoryOf(digest), meta, release: async () => await this.#drop(digest) };
    } catch (error) {
      await this.#drop(digest);
      throw error;
    }
  }

  /** Removes the digest's files unless a record refers to them or an import holds them. */
  async collect(digest: string): Promise<void> {
    await this.#queue.run(digest, async () => {
      if (this.#options.isReferenced(digest) || this.#holds.has(digest)) return;
      // Renamed first: what is under its final name is always whole.
      const doomed = join(this.#options.tmp, `gone-${randomHex(this.#options.random, 6)}`);
      await rename(this.directoryOf(digest), doomed).catch((error: unknown) => ignoreMissing(error));
      await rm(doomed, { recursive: true, force: true });
    });
  }

  async #buildUnlessThere<Meta>(digest: string, signal: AbortSignal, build: (directory: string) => Promise<Meta>): Promise<Meta> {
    signal.throwIfAborted();
    const target = this.directoryOf(digest);
    const found = await this.#readMeta(target);
    if (found !== undefined) return found as Meta; // written by the same kind of build
    await rm(target, { recursive: true, force: true });
    const staging = await this.makeTemporary("build");
    try {
      const meta = await build(staging);
      signal.throwIfAborted();
      await writeFile(join(staging, META_FILE), `${JSON.stringify(meta, undefined, 2)}\n`, { mode: 0o444 });
      await syncWithFiles(staging);
      await rename(staging, target);
      await fsyncDir(this.#options.root);
      return meta;
    } finally {
      await rm(staging, { recursive: true, force: true });
    }
  }

  async #drop(digest: string): Promise<void> {
    const count = this.#holds.get(digest) ?? 0;
    if (count > 1) {
      this.#holds.set(digest, count - 1);
      return;
    }
    this.#holds.delete(digest);
    await this.collect(digest);
  }

  async #readMeta(directory: string): Promise<unknown> {
    try {
      return JSON.parse(await readFile(join(directory, META_FILE), "utf8")) as unknown;
    } catch {
      return undefined; // absent or damaged: not there
    }
  }
}

/** Others may pass through a directory of ours by name, not list it. */
export async function makeTraversable(path: string): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o711 });
  await chmod(path, 0o711);
}

/** A directory and the files in it. */
async function syncWithFiles(path: string): Promise<void> {
  for (const name of await readdir(path)) {
    const file = await open(join(path, name), "r");
    try {
      await file.sync();
    } finally {
      await file.close();
    }
  }
  await fsyncDir(path);
}

function hexOf(digest: string): string {
  const hex = digest.startsWith("sha256:") ? digest.slice("sha256:".length) : "";
  if (!HEX.test(hex)) throw new TypeError(`not a digest: ${digest}`);
  return hex;
}

function ignoreMissing(error: unknown): void {
  if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error; // node:fs throws these
}

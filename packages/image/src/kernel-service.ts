/**
 * Guest kernels of one state directory: like images, but apart from them, so that one kernel serves every image.
 * The default kernel is the first one imported; importing the default's source again makes the new one the default.
 */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import type { CreateKernelRequest, KernelView } from "@fluxvm/contracts";
import { invalidField, PlatformError } from "@fluxvm/core";
import type { StoreChange } from "@fluxvm/store";
import type { KernelContent } from "./content.ts";
import type { ImageServiceOptions } from "./image-service.ts";
import { importKernel } from "./kernel/import-kernel.ts";
import { parseKernelSource } from "./kernel/kernel-source.ts";
import type { ContentStore } from "./library/content-store.ts";
import type { Leases } from "./library/leases.ts";
import type { Library, Found } from "./library/library.ts";
import { openShelf, type Shelf } from "./library/open-shelf.ts";
import { stampFile } from "./source-stamp.ts";

export type KernelServiceOptions = ImageServiceOptions;

/** A kernel that VMs can boot. */
export interface ReadyKernel {
  readonly id: string;
  readonly name: string;
  readonly digest: string;
  readonly kernelPath: string;
  readonly initrdPath: string | undefined;
  readonly release: string | undefined;
  readonly hasAgent: boolean;
  readonly isDefault: boolean;
}

const MAX_WAITING_IMPORTS = 64;
const DEFAULT_NAME = "default";

export class KernelService {
  readonly #options: KernelServiceOptions;
  readonly #shelf: Shelf<KernelContent>;
  readonly #leases: Leases;
  readonly #files: ContentStore;
  readonly #library: Library<KernelContent>;

  constructor(options: KernelServiceOptions) {
    this.#options = options;
    const { importTimeoutMs } = options.limits;
    this.#shelf = openShelf({ ...options, kind: "kernel", maxWaiting: MAX_WAITING_IMPORTS, importTimeoutMs });
    this.#leases = this.#shelf.leases;
    this.#files = this.#shelf.files;
    this.#library = this.#shelf.library;
  }

  /** Loads records and leases and removes what a crash left half-made. */
  async start(): Promise<void> {
    await this.#shelf.load();
  }

  async create(request: CreateKernelRequest): Promise<KernelView> {
    const source = parseKernelSource(request);
    if (request.name === DEFAULT_NAME) throw invalidField("name", `"${DEFAULT_NAME}" always means the default kernel`);
    const withInitrd = request.initrd ?? true;
    const { tools, limits } = this.#options;
    const stamps =
      source.kind === "file"
        ? await Promise.all(
            [source.path, ...(source.modules === undefined ? [] : [source.modules])].map(async (path) => await stampFile(path)),
          )
        : [];
    const agentDigest = withInitrd ? await hashAgent(tools.guestAgent) : null;
    const found = await this.#library.create({
      source: request.source,
      name: request.name,
      requestKey: JSON.stringify([source, stamps, agentDigest]),
      run: async (context) => await importKernel({ source, withInitrd, tools, limits, files: this.#files, context }),
    });
    return this.#view(found);
  }

  list(): readonly KernelView[] {
    return this.#library.list().map((found) => this.#view(found));
  }

  get(reference: string): KernelView {
    return this.#view(this.#library.get(this.#dereference(reference)));
  }

  async wait(reference: string, options: { readonly signal: AbortSignal; readonly timeoutMs: number }): Promise<KernelView> {
    return this.#view(await this.#library.wait(this.#dereference(reference), options));
  }

  /** Cancels an import under way. @throws PlatformError `KERNEL_IN_USE` */
  async delete(reference: string): Promise<void> {
    await this.#library.delete(this.#dereference(reference), (record) => this.#leases.requireUnused(record.id, record.name));
  }

  /** The default kernel when no reference is given. @throws PlatformError `KERNEL_NOT_FOUND`, `KERNEL_NOT_READY` */
  resolve(reference: string = DEFAULT_NAME): ReadyKernel {
    const { id, name, content } = this.#library.requireReady(this.#dereference(reference));
    const directory = this.#files.directoryOf(content.digest);
    return {
      id,
      name,
      digest: content.digest,
      kernelPath: join(directory, "vmlinux"),
      initrdPath: content.hasInitrd ? join(directory, "initrd") : undefined,
      release: content.release,
      hasAgent: content.hasAgent,
      isDefault: this.#defaultId() === id,
    };
  }

  /** Holds the kernel for `ownerId` at once. The caller commits the change together with its own record. */
  lease(kernelId: string, ownerId: string): StoreChange {
    return this.#leases.take(this.#library.requireReady(kernelId).id, ownerId);
  }

  releaseLeases(ownerId: string): StoreChange[] {
    return this.#leases.release(ownerId);
  }

  usedBy(kernelId: string): readonly string[] {
    return this.#leases.usedBy(kernelId);
  }

  leaseOwners(): readonly string[] {
    return this.#leases.owners();
  }

  async close(): Promise<void> {
    await this.#library.close();
  }

  /**
   * Derived, so that it cannot disagree with the records: the latest ready kernel of the source that the first ready
   * one was made from. Kernels with an agent come before those without.
   */
  #defaultId(): string | undefined {
    const ready = this.#library.list().flatMap(({ record }) => (record.content === undefined ? [] : [{ record, content: record.content }]));
    const withAgent = ready.filter(({ content }) => content.hasAgent);
    const candidates = withAgent.length > 0 ? withAgent : ready;
    const first = candidates[0];
    return candidates.findLast(({ record }) => record.source === first?.record.source)?.record.id;
  }

  #dereference(reference: string): string {
    if (reference !== DEFAULT_NAME) return reference;
    const id = this.#defaultId();
    if (id === undefined) throw new PlatformError("KERNEL_NOT_FOUND", "There is no default kernel: import one with fluxctl kernel import");
    return id;
  }

  #view({ record, progress }: Found<KernelContent>): KernelView {
    const { content } = record;
    return {
      id: record.id,
      name: record.name,
      source: record.source,
      state: record.state,
      ...(progress === undefined ? {} : { progress }),
      ...(record.error === undefined ? {} : { error: { ...record.error } }),
      is_default: this.#defaultId() === record.id,
      ...(content?.release === undefined ? {} : { release: content.release }),
      ...(content === undefined ? {} : { digest: content.digest, stored_bytes: content.storedBytes }),
      has_agent: content?.hasAgent ?? false,
      used_by: this.#leases.usedBy(record.id),
      created_at: new Date(record.createdAtMs).toISOString(),
    };
  }
}

export function createKernelService(options: KernelServiceOptions): KernelService {
  return new KernelService(options);
}

/** Part of what makes two requests equal: a new agent means a new initrd. */
async function hashAgent(path: string): Promise<string> {
  const hash = createHash("sha256");
  try {
    await pipeline(createReadStream(path), hash);
  } catch (error) {
    throw new PlatformError("HOST_TOOL_MISSING", "The guest agent's binary is not there: build it, or set tools.guest_agent", {
      cause: error,
      details: { path },
    });
  }
  return hash.digest("hex");
}

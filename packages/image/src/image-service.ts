/**
 * Images of one state directory: imports, leases, and overlays for VMs. See `library/library.ts` for their states.
 * `start()` comes first; the lease and release calls return changes that the caller commits with its own records.
 */
import { join } from "node:path";
import type { CreateImageRequest, ImageConfig, ImageView } from "@fluxvm/contracts";
import { GIB, invalidField, PlatformError, type Clock, type Random } from "@fluxvm/core";
import type { Store, StoreChange } from "@fluxvm/store";
import type { Logger } from "@fluxvm/telemetry";
import type { ImageContent } from "./content.ts";
import { createOverlay, type OverlayRequest } from "./disk/overlay.ts";
import { importSource } from "./import-source.ts";
import type { ContentStore } from "./library/content-store.ts";
import type { Leases } from "./library/leases.ts";
import type { Library, Found } from "./library/library.ts";
import { openShelf, type Shelf } from "./library/open-shelf.ts";
import type { ObjectRecord } from "./library/record.ts";
import type { ImageLimits, ImageTools } from "./ports.ts";
import { parseImageSource, type ImageSource } from "./source.ts";
import { stampFile } from "./source-stamp.ts";

export interface ImageServiceOptions {
  readonly stateDir: string;
  readonly store: Store;
  readonly tools: ImageTools;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly limits: ImageLimits;
  readonly parallelImports: number;
}

/** A disk that VMs can be made from. */
export interface ReadyImage {
  readonly id: string;
  readonly name: string;
  readonly digest: string;
  readonly kind: "rootfs" | "disk";
  readonly format: "raw" | "qcow2";
  readonly diskPath: string;
  readonly virtualSizeBytes: number;
  readonly config: ImageConfig | undefined;
}

const MAX_WAITING_IMPORTS = 256;

export class ImageService {
  readonly #options: ImageServiceOptions;
  readonly #shelf: Shelf<ImageContent>;
  readonly #leases: Leases;
  readonly #files: ContentStore;
  readonly #library: Library<ImageContent>;

  constructor(options: ImageServiceOptions) {
    this.#options = options;
    const { importTimeoutMs } = options.limits;
    this.#shelf = openShelf({ ...options, kind: "image", maxWaiting: MAX_WAITING_IMPORTS, importTimeoutMs });
    this.#leases = this.#shelf.leases;
    this.#files = this.#shelf.files;
    this.#library = this.#shelf.library;
  }

  /** Loads records and leases and removes what a crash left half-made. */
  async start(): Promise<void> {
    await this.#shelf.load();
  }

  /** Starts an import; its record is durable when this resolves. An equal import under way or done is returned. */
  async create(request: CreateImageRequest): Promise<ImageView> {
    const source = parseImageSource(request.source);
    checkRequest(request, source);
    const { tools, limits, clock } = this.#options;
    const found = await this.#library.create({
      source: request.source,
      name: request.name,
      requestKey: JSON.stringify([source, await stampSource(source), request.sha256 ?? null, request.size_gib ?? null]),
      run: async (context) =>
        await importSource({
          source,
          sha256: request.sha256,
          minBytes: Math.ceil((request.size_gib ?? 0) * GIB),
          tools,
          limits,
          clock,
          files: this.#files,
          context,
        }),
    });
    return this.#view(found);
  }

  list(): readonly ImageView[] {
    return this.#library.list().map((found) => this.#view(found));
  }

  get(reference: string): ImageView {
    return this.#view(this.#library.get(reference));
  }

  async wait(reference: string, options: { readonly signal: AbortSignal; readonly timeoutMs: number }): Promise<ImageView> {
    return this.#view(await this.#library.wait(reference, options));
  }

  /** Cancels an import under way. @throws PlatformError `IMAGE_IN_USE` */
  async delete(reference: string): Promise<void> {
    await this.#library.delete(reference, (record) => this.#leases.requireUnused(record.id, record.name));
  }

  /** @throws PlatformError `IMAGE_NOT_FOUND`, `IMAGE_NOT_READY` */
  resolve(reference: string): ReadyImage {
    const { id, name, content } = this.#library.requireReady(reference);
    return {
      id,
      name,
      digest: content.digest,
      kind: content.kind,
      format: content.format,
      diskPath: join(this.#files.directoryOf(content.digest), content.file),
      virtualSizeBytes: content.virtualSizeBytes,
      config: content.config,
    };
  }

  /** Holds the image for `ownerId` at once. The caller commits the change together with its own record. */
  lease(imageId: string, ownerId: string): StoreChange {
    return this.#leases.take(this.#library.requireReady(imageId).id, ownerId);
  }

  releaseLeases(ownerId: string): StoreChange[] {
    return this.#leases.release(ownerId);
  }

  usedBy(imageId: string): readonly string[] {
    return this.#leases.usedBy(imageId);
  }

  leaseOwners(): readonly string[] {
    return this.#leases.owners();
  }

  /** Writes a copy-on-write disk over the image. @throws PlatformError `DISK_SHRINK_REFUSED` */
  async createOverlay(request: Omit<OverlayRequest, "image"> & { readonly image: ReadyImage }): Promise<void> {
    await createOverlay(request);
  }

  /** Cancels imports under way and waits until nothing of them is left. */
  async close(): Promise<void> {
    await this.#library.close();
  }

  #view(found: Found<ImageContent>): ImageView {
    return {
      ...toImageView(found.record),
      ...(found.progress === undefined ? {} : { progress: found.progress }),
      used_by: this.#leases.usedBy(found.record.id),
    };
  }
}

export function createImageService(options: ImageServiceOptions): ImageService {
  return new ImageService(options);
}

function checkRequest(request: CreateImageRequest, source: ImageSource): void {
  const isDisk = source.kind === "file" || source.kind === "url";
  if (source.kind === "url" && request.sha256 === undefined) throw invalidField("sha256", "it is required for a disk from the network");
  if (!isDisk && request.sha256 !== undefined)
    throw invalidField("sha256", "it applies to disks only; a docker:// reference can carry @sha256:…");
  if (isDisk && request.size_gib !== undefined)
    throw invalidField("size_gib", "it applies to OCI and debian: sources only; a VM's disk is sized when it is created");
  if (request.sha256 !== undefined && !/^[0-9a-f]{64}$/.test(request.sha256))
    throw invalidField("sha256", "expected 64 hexadecimal digits");
  if (request.size_gib !== undefined && !(request.size_gib > 0 && request.size_gib <= 65_536))
    throw invalidField("size_gib", "out of range");
  if (request.name?.length === 0)
    throw new PlatformError("REQUEST_INVALID", "Invalid name: empty", { fields: [{ path: "name", message: "empty" }] });
}

/** A local source that changed is another source; one that is missing is said at once. */
async function stampSource(source: ImageSource): Promise<string | null> {
  if (source.kind === "oci") return await stampFile(join(source.path, "index.json"));
  if (source.kind === "oci-archive" || source.kind === "file") return await stampFile(source.path);
  return null;
}

function toImageView(record: ObjectRecord<ImageContent>): Omit<ImageView, "used_by" | "progress"> {
  const { content } = record;
  return {
    id: record.id,
    name: record.name,
    source: record.source,
    state: record.state,
    created_at: new Date(record.createdAtMs).toISOString(),
    ...(record.error === undefined ? {} : { error: { ...record.error } }),
    ...(content === undefined
      ? {}
      : {
          digest: content.digest,
          kind: content.kind,
          format: content.format,
          virtual_size_bytes: content.virtualSizeBytes,
          stored_bytes: content.storedBytes,
          ...(content.config === undefined ? {} : { config: content.config }),
        }),
  };
}

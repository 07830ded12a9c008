/** A state directory with the two services over the real host, for integration tests; gone when the test ends. */
import assert from "node:assert/strict";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import type { CreateImageRequest, ImageView } from "@fluxvm/contracts";
import { systemRandom } from "@fluxvm/core";
import { systemClock } from "@fluxvm/host";
import { findNativeBinary } from "@fluxvm/host/testing";
import type { Store } from "@fluxvm/store";
import { createMemoryStore } from "@fluxvm/store/testing";
import { createNullLogger } from "@fluxvm/telemetry";
import { createImageService, type ImageService, type ImageServiceOptions } from "../image-service.ts";
import { createKernelService, type KernelService } from "../kernel-service.ts";
import type { ImageTools } from "../ports.ts";

export interface ImageWorld {
  /** For a test's own files. */
  readonly directory: string;
  readonly stateDir: string;
  readonly store: Store;
  readonly images: ImageService;
  readonly kernels: KernelService;
  readonly signal: AbortSignal;
  /** Creates an image and waits for its end, ready or failed. */
  import(request: CreateImageRequest): Promise<ImageView>;
  /** Paths below the state directory, directories of finished objects and leftovers alike. */
  listState(): Promise<string[]>;
}

export interface WorldOptions {
  readonly stateDir?: string;
  readonly store?: Store;
  readonly limits?: Partial<ImageServiceOptions["limits"]>;
  readonly tools?: Partial<ImageTools>;
  readonly parallelImports?: number;
}

const WAIT_MS = 300_000;

export function hostTools(): ImageTools {
  return {
    hostHelper: findNativeBinary("fluxvm-host-helper"),
    guestAgent: findNativeBinary("fluxvm-guest-agent"),
    skopeo: "skopeo",
    mmdebstrap: "mmdebstrap",
    mke2fs: "mke2fs",
    skopeoEnvironment: { HOME: homedir() },
  };
}

export async function createImageWorld(t: TestContext, options: WorldOptions = {}): Promise<ImageWorld> {
  const directory = await mkdtemp(join(tmpdir(), "fluxvm-image-"));
  const stateDir = options.stateDir ?? join(directory, "state");
  const store = options.store ?? createMemoryStore();
  const serviceOptions: ImageServiceOptions = {
    stateDir,
    store,
    tools: { ...hostTools(), ...options.tools },
    clock: systemClock,
    random: systemRandom,
    logger: createNullLogger(),
    limits: { maxUnpackedBytes: 2 ** 31, maxFiles: 100_000, importTimeoutMs: 240_000, ...options.limits },
    parallelImports: options.parallelImports ?? 2,
  };
  const images = createImageService(serviceOptions);
  const kernels = createKernelService(serviceOptions);
  const ending = new AbortController();
  t.after(async () => {
    ending.abort();
    await images.close();
    await kernels.close();
    await rm(directory, { recursive: true, force: true });
  });
  await images.start();
  await kernels.start();
  return {
    directory,
    stateDir,
    store,
    images,
    kernels,
    signal: ending.signal,
    import: async (request) => {
      const { id } = await images.create(request);
      return await images.wait(id, { signal: ending.signal, timeoutMs: WAIT_MS });
    },
    listState: async () => await listState(stateDir),
  };
}

export function assertReady(image: ImageView): void {
  assert.equal(image.state, "ready", image.error?.message ?? "no error");
}

/** The work directories that are always there do not count. */
async function listState(stateDir: string): Promise<string[]> {
  const found = await readdir(stateDir, { recursive: true });
  return found.filter((path) => !["images", "kernels", "tmp", "tmp/images", "tmp/kernels"].includes(path)).toSorted();
}

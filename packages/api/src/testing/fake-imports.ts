/** Images and kernels of the fake platform: an import goes through four steps on the clock and ends ready, or failed where the source says `fail`. */
import type { CreateImageRequest, CreateKernelRequest, ImageView, KernelView, Progress } from "@fluxvm/contracts";
import { abortable, PlatformError, type Clock } from "@fluxvm/core";
import type { ImageOperations, KernelOperations } from "../platform.ts";

export interface FakeImport {
  readonly clock: Clock;
  readonly stepMs: number;
  readonly usedBy: (id: string) => readonly string[];
}

export type FakeImages = ImageOperations & {
  addReady(name: string, cmd?: readonly string[]): void;
  find(reference: string): ImageView | undefined;
};
export type FakeKernels = KernelOperations & { addReady(name: string): void; find(reference: string): KernelView | undefined };

const TOTAL_BYTES = 100 * 1_048_576;
const STEPS: readonly Progress[] = [
  { phase: "fetching", done_bytes: 0, total_bytes: TOTAL_BYTES },
  { phase: "fetching", done_bytes: TOTAL_BYTES / 2, total_bytes: TOTAL_BYTES },
  { phase: "unpacking", done_bytes: TOTAL_BYTES, total_bytes: TOTAL_BYTES },
  { phase: "finishing", done_bytes: TOTAL_BYTES, total_bytes: TOTAL_BYTES },
];

interface Importable {
  readonly id: string;
  readonly name: string;
  readonly source: string;
  readonly state: "importing" | "ready" | "failed";
  readonly progress?: Progress;
  readonly error?: { readonly code: string; readonly message: string };
  readonly used_by: readonly string[];
  readonly created_at: string;
}

interface Codes {
  readonly notFound: "IMAGE_NOT_FOUND" | "KERNEL_NOT_FOUND";
  readonly nameTaken: "IMAGE_NAME_TAKEN" | "KERNEL_NAME_TAKEN";
  readonly inUse: "IMAGE_IN_USE" | "KERNEL_IN_USE";
  readonly noun: string;
}

/** Named things with an import behind each. */
class Collection<View extends Importable> {
  readonly #views = new Map<string, View>();
  readonly #ends = new Map<string, PromiseWithResolvers<void>>();
  readonly #options: FakeImport;
  readonly #codes: Codes;

  constructor(options: FakeImport, codes: Codes) {
    this.#options = options;
    this.#codes = codes;
  }

  find(reference: string): View | undefined {
    const found = [...this.#views.values()].find(
      (v) => v.id === reference || v.name === reference || ("digest" in v && v.digest === reference),
    );
    return found === undefined ? undefined : { ...found, used_by: this.#options.usedBy(found.id) };
  }

  get(reference: string): View {
    const view = this.find(reference);
    if (view === undefined)
      throw new PlatformError(this.#codes.notFound, `There is no ${this.#codes.noun} ${JSON.stringify(reference.slice(0, 200))}`);
    return view;
  }

  list(): readonly View[] {
    return [...this.#views.keys()].map((id) => this.get(id));
  }

  get size(): number {
    return this.#views.size;
  }

  add(view: View): void {
    this.#views.set(view.id, view);
  }

  start(view: View, finish: (view: View) => View): View {
    const running = [...this.#views.values()].find((v) => v.source === view.source && v.name === view.name && v.state === "importing");
    if (running !== undefined) return this.get(running.id);
    if (this.find(view.name) !== undefined)
      throw new PlatformError(this.#codes.nameTaken, `The name ${JSON.stringify(view.name)} is taken`);
    this.#views.set(view.id, { ...view, progress: STEPS[0] });
    this.#ends.set(view.id, Promise.withResolvers());
    this.#step(view.id, { index: 1, finish });
    return this.get(view.id);
  }

  #step(id: string, next: { readonly index: number; readonly finish: (view: View) => View }): void {
    this.#options.clock.schedule(this.#options.stepMs, () => {
      const view = this.#views.get(id);
      if (view === undefined) return; // cancelled
      if (next.index < STEPS.length) {
        this.#views.set(id, { ...view, progress: STEPS[next.index] });
        this.#step(id, { ...next, index: next.index + 1 });
        return;
      }
      const { progress: _progress, ...rest } = view;
      const ended = rest as View; // progress is optional in every view
      this.#views.set(
        id,
        view.source.includes("fail")
          ? { ...ended, state: "failed", error: { code: "IMAGE_SOURCE_UNREACHABLE", message: "The source cannot be read" } }
          : next.finish(ended),
      );
      this.#ends.get(id)?.resolve();
    });
  }

  async wait(reference: string, options: { readonly signal: AbortSignal; readonly timeoutMs: number }): Promise<View> {
    const { id, state } = this.get(reference);
    const end = this.#ends.get(id);
    if (state !== "importing" || end === undefined) return this.get(id);
    const late = Promise.withResolvers<never>();
    const cancel = this.#options.clock.schedule(options.timeoutMs, () =>
      late.reject(new PlatformError("WAIT_TIMEOUT", `The ${this.#codes.noun} is still being imported`)),
    );
    late.promise.catch(() => undefined); // raced below
    try {
      await abortable(Promise.race([end.promise, late.promise]), options.signal);
    } finally {
      cancel();
    }
    return this.get(id);
  }

  delete(reference: string): void {
    const { id, used_by } = this.get(reference);
    if (used_by.length > 0) throw new PlatformError(this.#codes.inUse, `The ${this.#codes.noun} is used by ${used_by.join(", ")}`);
    this.#views.delete(id);
    this.#ends.get(id)?.resolve();
  }
}

function numberedId(prefix: string, count: number): string {
  return `${prefix}-${String(count).padStart(16, "0")}`;
}

export function createFakeImages(options: FakeImport): FakeImages {
  const images = new Collection<ImageView>(options, {
    notFound: "IMAGE_NOT_FOUND",
    nameTaken: "IMAGE_NAME_TAKEN",
    inUse: "IMAGE_IN_USE",
    noun: "image",
  });
  let count = 0;
  const begin = (request: CreateImageRequest): ImageView => ({
    id: numberedId("img", (count += 1)),
    name: request.name ?? request.source,
    source: request.source,
    state: "importing",
    used_by: [],
    created_at: new Date(options.clock.wallMs()).toISOString(),
  });
  const finish = (view: ImageView, cmd: readonly string[] = []): ImageView => ({
    ...view,
    state: "ready",
    digest: `sha256:${view.id.slice(4).padStart(64, "0")}`,
    kind: "rootfs",
    format: "raw",
    virtual_size_bytes: 2 * TOTAL_BYTES,
    stored_bytes: TOTAL_BYTES,
    config: { entrypoint: [], cmd: [...cmd], env: ["PATH=/usr/bin:/bin"], user: "", working_dir: "/", stop_signal: "SIGTERM", labels: {} },
  });
  return {
    create: async (request) => images.start(begin(request), (view) => finish(view)),
    list: async () => images.list(),
    get: async (reference) => images.get(reference),
    wait: async (reference, call) => await images.wait(reference, call),
    delete: async (reference) => images.delete(reference),
    find: (reference) => images.find(reference),
    addReady: (name, cmd) => images.add(finish(begin({ source: `fake:${name}`, name }), cmd)),
  };
}

export function createFakeKernels(options: FakeImport): FakeKernels {
  const kernels = new Collection<KernelView>(options, {
    notFound: "KERNEL_NOT_FOUND",
    nameTaken: "KERNEL_NAME_TAKEN",
    inUse: "KERNEL_IN_USE",
    noun: "kernel",
  });
  let count = 0;
  const begin = (request: CreateKernelRequest): KernelView => ({
    id: numberedId("krn", (count += 1)),
    name: request.name ?? "6.1.0-fake",
    source: request.source,
    state: "importing",
    is_default: kernels.size === 0,
    has_agent: request.initrd ?? true,
    used_by: [],
    created_at: new Date(options.clock.wallMs()).toISOString(),
  });
  const finish = (view: KernelView): KernelView => ({
    ...view,
    state: "ready",
    release: "6.1.0-fake",
    digest: `sha256:${view.id.slice(4).padStart(64, "0")}`,
    stored_bytes: 40 * 1_048_576,
  });
  return {
    create: async (request) => kernels.start(begin(request), finish),
    list: async () => kernels.list(),
    get: async (reference) => kernels.get(reference),
    wait: async (reference, call) => await kernels.wait(reference, call),
    delete: async (reference) => kernels.delete(reference),
    find: (reference) => (reference === "default" ? kernels.list().find((k) => k.is_default) : kernels.find(reference)),
    addReady: (name) => kernels.add(finish(begin({ source: `fake:${name}`, name }))),
  };
}

/** Images and kernels: the same life of import, progress, use and deletion. `reference` is an id, a name or a digest. */
import type { CreateImageRequest, CreateKernelRequest, ImageView, KernelView, Progress } from "@fluxvm/contracts";
import { isPlatformError } from "@fluxvm/contracts";
import type { Transport } from "./transport.ts";
import type { Call } from "./vms.ts";

interface Importable {
  readonly id: string;
  readonly state: "importing" | "ready" | "failed";
  readonly progress?: Progress | undefined;
}

export interface ObjectClient<Request, View> {
  /** Starts an import and resolves with its record at once. */
  create(request: Request, options?: Call): Promise<View>;
  list(options?: Call): Promise<readonly View[]>;
  get(reference: string, options?: Call): Promise<View>;
  /** Resolves when the import ended, ready or failed. @throws `WAIT_TIMEOUT` */
  wait(reference: string, options?: Call & { readonly timeoutSeconds?: number | undefined }): Promise<View>;
  /** Like `wait`, without a time limit, telling of progress about twice a second. */
  follow(reference: string, options: Call & { readonly onProgress: (view: View) => void }): Promise<View>;
  delete(reference: string, options?: Call): Promise<void>;
}

export type ImageClient = ObjectClient<CreateImageRequest, ImageView>;
export type KernelClient = ObjectClient<CreateKernelRequest, KernelView>;

export function createObjectClient<Request, View extends Importable>(
  transport: Transport,
  collection: string,
): ObjectClient<Request, View> {
  const path = (reference: string, rest = ""): string => `/v1/${collection}/${encodeURIComponent(reference)}${rest}`;
  const wait: ObjectClient<Request, View>["wait"] = async (reference, options = {}) =>
    await transport.json<View>("GET", path(reference, "/wait"), {
      query: { timeout_seconds: options.timeoutSeconds },
      signal: options.signal,
    });
  const get: ObjectClient<Request, View>["get"] = async (reference, options = {}) =>
    await transport.json<View>("GET", path(reference), options);
  return {
    create: async (request, options = {}) => await transport.json<View>("POST", `/v1/${collection}`, { json: request, ...options }),
    async list(options = {}) {
      const reply = await transport.json<{ items: View[] }>("GET", `/v1/${collection}`, options);
      return reply.items;
    },
    get,
    wait,
    async follow(reference, options) {
      for (;;) {
        const view = await waitOrGet(reference, { wait, get, signal: options.signal });
        options.onProgress(view);
        if (view.state !== "importing") return view;
      }
    },
    async delete(reference, options = {}) {
      await transport.empty("DELETE", path(reference), options);
    },
  };
}

interface Polls<View> extends Call {
  readonly wait: (reference: string, options: Call & { readonly timeoutSeconds: number }) => Promise<View>;
  readonly get: (reference: string, options: Call) => Promise<View>;
}

/** The end of the import if it comes within half a second, else its state now. */
async function waitOrGet<View>(reference: string, polls: Polls<View>): Promise<View> {
  try {
    return await polls.wait(reference, { timeoutSeconds: 0.5, signal: polls.signal });
  } catch (error) {
    if (!isPlatformError(error, "WAIT_TIMEOUT")) throw error;
    return await polls.get(reference, { signal: polls.signal });
  }
}

/** Images and kernels: the same life of import, progress, use and deletion. `reference` is an id, a name or a digest. */
import type { CreateImageRequest, CreateKernelRequest, ImageView, KernelView, Progress } from "@fluxvm/contracts";
import { isPlatformError } from "@fluxvm/contracts";
import { setTimeout as sleep } from "node:timers/promises";
import type { Transport } from "./transport.ts";
import type { Call } from "./vms.ts";

/** Of one request; `follow` asks again. */
const LONGEST_WAIT_SECONDS = 600;
const PROGRESS_INTERVAL_MS = 500;

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
      return await followImport(reference, { wait, get, ...options });
    },
    async delete(reference, options = {}) {
      await transport.empty("DELETE", path(reference), options);
    },
  };
}

interface Polls<View> extends Call {
  readonly wait: (reference: string, options: Call & { readonly timeoutSeconds: number }) => Promise<View>;
  readonly get: (reference: string, options: Call) => Promise<View>;
  readonly onProgress: (view: View) => void;
}

/** One long wait for the end, and beside it a look at the progress now and then. */
async function followImport<View extends Importable>(reference: string, polls: Polls<View>): Promise<View> {
  const stop = new AbortController();
  const signal = polls.signal === undefined ? stop.signal : AbortSignal.any([stop.signal, polls.signal]);
  const ended = waitForEnd(reference, { ...polls, signal });
  ended.catch(() => undefined); // raced below, perhaps only after it failed
  try {
    for (;;) {
      polls.onProgress(await polls.get(reference, { signal }));
      const view = await Promise.race([ended, sleep(PROGRESS_INTERVAL_MS, undefined, { signal })]);
      if (view === undefined) continue;
      polls.onProgress(view);
      return view;
    }
  } finally {
    stop.abort();
  }
}

async function waitForEnd<View>(reference: string, { wait, signal }: Pick<Polls<View>, "wait" | "signal">): Promise<View> {
  for (;;) {
    try {
      return await wait(reference, { timeoutSeconds: LONGEST_WAIT_SECONDS, signal });
    } catch (error) {
      if (!isPlatformError(error, "WAIT_TIMEOUT")) throw error;
      await sleep(PROGRESS_INTERVAL_MS, undefined, { signal });
    }
  }
}

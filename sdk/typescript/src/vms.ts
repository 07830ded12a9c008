/** Virtual machines. `vm` is an id or a name everywhere. */
import type { CreateVmRequest, PatchVmRequest, StopVmRequest, VmStateName, VmView } from "@fluxvm/contracts";
import type { Transport } from "./transport.ts";

export interface Call {
  readonly signal?: AbortSignal | undefined;
}

export interface ReadyCall extends Call {
  /** `exec`: resolve only when a first command has run in the guest. */
  readonly ready?: "exec" | undefined;
}

export interface ListVmsQuery {
  readonly name?: string | undefined;
  /** `k=v,k2!=v,k3,!k4` */
  readonly label?: string | undefined;
  readonly state?: VmStateName | undefined;
}

export type WaitTarget = VmStateName | "ready" | "gone";

export interface VmClient {
  create(request: CreateVmRequest, options?: ReadyCall): Promise<VmView>;
  list(query?: ListVmsQuery, options?: Call): Promise<readonly VmView[]>;
  get(vm: string, options?: Call): Promise<VmView>;
  patch(vm: string, request: PatchVmRequest, options?: Call): Promise<VmView>;
  start(vm: string, options?: ReadyCall): Promise<VmView>;
  stop(vm: string, request?: StopVmRequest, options?: Call): Promise<VmView>;
  restart(vm: string, request?: StopVmRequest, options?: ReadyCall): Promise<VmView>;
  pause(vm: string, options?: Call): Promise<VmView>;
  resume(vm: string, options?: Call): Promise<VmView>;
  delete(vm: string, options?: Call): Promise<void>;
  /** Resolves when the VM is in one of the states; `undefined` when it is gone. @throws `WAIT_TIMEOUT` */
  wait(
    vm: string,
    states: readonly WaitTarget[],
    options?: Call & { readonly timeoutSeconds?: number | undefined },
  ): Promise<VmView | undefined>;
  /** Console output: the last `lines`, then what follows if asked. Leaving the loop ends the request. */
  logs(
    vm: string,
    query?: { readonly lines?: number | undefined; readonly follow?: boolean | undefined },
    options?: Call,
  ): AsyncIterable<Uint8Array>;
}

export function vmPath(vm: string, rest = ""): string {
  return `/v1/vms/${encodeURIComponent(vm)}${rest}`;
}

export function createVmClient(transport: Transport): VmClient {
  const act = async (vm: string, verb: string, options: ReadyCall & { readonly json?: unknown } = {}): Promise<VmView> =>
    await transport.json<VmView>("POST", vmPath(vm, `/${verb}`), {
      query: { ready: options.ready },
      json: options.json ?? {},
      signal: options.signal,
    });
  return {
    create: async (request, options = {}) =>
      await transport.json<VmView>("POST", "/v1/vms", { json: request, query: { ready: options.ready }, signal: options.signal }),
    async list(query = {}, options = {}) {
      const { name, label, state } = query;
      const reply = await transport.json<{ items: VmView[] }>("GET", "/v1/vms", { query: { name, label, state }, ...options });
      return reply.items;
    },
    get: async (vm, options = {}) => await transport.json<VmView>("GET", vmPath(vm), options),
    patch: async (vm, request, options = {}) => await transport.json<VmView>("PATCH", vmPath(vm), { json: request, ...options }),
    start: async (vm, options) => await act(vm, "start", options),
    stop: async (vm, request, options) => await act(vm, "stop", { json: request, ...options }),
    restart: async (vm, request, options) => await act(vm, "restart", { json: request, ...options }),
    pause: async (vm, options) => await act(vm, "pause", options),
    resume: async (vm, options) => await act(vm, "resume", options),
    async delete(vm, options = {}) {
      await transport.empty("DELETE", vmPath(vm), options);
    },
    wait: async (vm, states, options = {}) => await waitForState(transport, { vm, states, ...options }),
    logs: (vm, query, options) => readLogs(transport, { vm, ...query, ...options }),
  };
}

interface WaitQuery extends Call {
  readonly vm: string;
  readonly states: readonly WaitTarget[];
  readonly timeoutSeconds?: number | undefined;
}

async function waitForState(transport: Transport, wait: WaitQuery): Promise<VmView | undefined> {
  const query = { for: wait.states.join(","), timeout_seconds: wait.timeoutSeconds };
  const reply = await transport.stream("GET", vmPath(wait.vm, "/wait"), { query, signal: wait.signal });
  const text = await transport.text(reply, wait.signal);
  return reply.status === 204 ? undefined : (JSON.parse(text) as VmView); // the route's documented reply
}

interface LogQuery extends Call {
  readonly vm: string;
  readonly lines?: number | undefined;
  readonly follow?: boolean | undefined;
}

async function* readLogs(transport: Transport, options: LogQuery): AsyncGenerator<Uint8Array, void, undefined> {
  const { vm, lines, follow, signal } = options;
  const reply = await transport.stream("GET", vmPath(vm, "/logs"), { query: { lines, follow }, signal });
  try {
    for await (const chunk of reply.body) yield chunk as Buffer; // undici's bodies yield buffers
  } catch (error) {
    throw transport.translate(error, signal);
  } finally {
    reply.body.destroy();
  }
}

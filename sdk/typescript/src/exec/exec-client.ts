/** Execs: commands that run in a guest, whoever is attached to them. */
import type { CreateExecRequest, ExecView } from "@fluxvm/contracts";
import type { Transport } from "../transport.ts";
import { vmPath, type Call } from "../vms.ts";
import { ExecSession, type AttachOptions } from "./exec-session.ts";

export interface ExecClient {
  create(vm: string, request: CreateExecRequest, options?: Call): Promise<ExecView>;
  list(vm: string, options?: Call): Promise<readonly ExecView[]>;
  get(vm: string, execId: string, options?: Call): Promise<ExecView>;
  signal(vm: string, execId: string, signal: string, options?: Call): Promise<void>;
  /** Forgets an ended exec and its output; kills a running one. */
  remove(vm: string, execId: string, options?: Call): Promise<void>;
  /** Takes part in an exec; `workload` is the image's own entrypoint. Returns at once: the session connects by itself. */
  attach(vm: string, execId: string, options?: AttachOptions): ExecSession;
  /** `create`, then `attach`. */
  start(vm: string, request: CreateExecRequest, options?: AttachOptions): Promise<ExecSession>;
}

export function createExecClient(transport: Transport): ExecClient {
  const path = (vm: string, execId: string): string => vmPath(vm, `/execs/${encodeURIComponent(execId)}`);
  const create: ExecClient["create"] = async (vm, request, options = {}) =>
    await transport.json<ExecView>("POST", vmPath(vm, "/execs"), { json: request, signal: options.signal });
  const attach: ExecClient["attach"] = (vm, execId, options) => new ExecSession(transport, { vm, execId, path: path(vm, execId) }, options);
  return {
    create,
    attach,
    async list(vm, options = {}) {
      const reply = await transport.json<{ items: ExecView[] }>("GET", vmPath(vm, "/execs"), options);
      return reply.items;
    },
    get: async (vm, execId, options = {}) => await transport.json<ExecView>("GET", path(vm, execId), options),
    async signal(vm, execId, signal, options = {}) {
      await transport.empty("POST", `${path(vm, execId)}/signal`, { json: { signal }, ...options });
    },
    async remove(vm, execId, options = {}) {
      await transport.empty("DELETE", path(vm, execId), options);
    },
    async start(vm, request, options) {
      const exec = await create(vm, request, { signal: options?.signal });
      return attach(vm, exec.id, options);
    },
  };
}

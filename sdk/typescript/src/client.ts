/** `createClient`: everything one daemon offers, typed, over one kept-alive connection pool. */
import type { AgentExecRequest, AgentExecResult } from "@fluxvm/contracts";
import { createExecClient, type ExecClient } from "./exec/exec-client.ts";
import { createFileClient, type FileClient } from "./files.ts";
import { createHostClient, type HostClient } from "./host.ts";
import { createObjectClient, type ImageClient, type KernelClient } from "./objects.ts";
import { Transport, type TransportOptions } from "./transport.ts";
import { createVmClient, vmPath, type Call, type VmClient } from "./vms.ts";

export interface AgentClient {
  /** Runs a command to its end; at most 1 MiB of each stream comes back. */
  run(vm: string, request: AgentExecRequest, options?: Call): Promise<AgentExecResult>;
  ping(vm: string, options?: Call): Promise<{ readonly rtt_ms: number; readonly version: string }>;
}

export interface Client {
  readonly vms: VmClient;
  readonly agent: AgentClient;
  readonly execs: ExecClient;
  readonly files: FileClient;
  readonly images: ImageClient;
  readonly kernels: KernelClient;
  readonly host: HostClient;
  /** The address in use, for messages. */
  readonly server: string;
  /** Ends every connection. Requests and exec sessions under way fail. */
  close(): Promise<void>;
}

/** @throws PlatformError `REQUEST_INVALID` when the address cannot be understood. Connects with the first request. */
export function createClient(options: TransportOptions): Client {
  const transport = new Transport(options);
  return {
    vms: createVmClient(transport),
    agent: {
      run: async (vm, request, call = {}) =>
        await transport.json<AgentExecResult>("POST", vmPath(vm, "/agent"), { json: request, ...call }),
      ping: async (vm, call = {}) => await transport.json("POST", vmPath(vm, "/agent/ping"), { json: {}, ...call }),
    },
    execs: createExecClient(transport),
    files: createFileClient(transport),
    images: createObjectClient(transport, "images"),
    kernels: createObjectClient(transport, "kernels"),
    host: createHostClient(transport),
    server: transport.address.shown,
    close: async () => await transport.close(),
  };
}

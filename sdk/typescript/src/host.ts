/** What the daemon says of itself and its host. */
import type { HostReport, Readiness, Version } from "@fluxvm/contracts";
import { isPlatformError } from "@fluxvm/contracts";
import type { Transport } from "./transport.ts";
import type { Call } from "./vms.ts";

export interface HostClient {
  /** Capabilities of the host; `refresh` probes again. */
  report(options?: Call & { readonly refresh?: boolean | undefined }): Promise<HostReport>;
  version(options?: Call): Promise<Version>;
  /** Whether the daemon answers at all. */
  isAlive(options?: Call): Promise<boolean>;
  readiness(options?: Call): Promise<Readiness>;
  /** Prometheus text. */
  metrics(options?: Call): Promise<string>;
  openApi(options?: Call): Promise<unknown>;
}

export function createHostClient(transport: Transport): HostClient {
  return {
    report: async (options = {}) =>
      await transport.json<HostReport>("GET", "/v1/host/report", { query: { refresh: options.refresh }, signal: options.signal }),
    version: async (options = {}) => await transport.json<Version>("GET", "/v1/version", options),
    async isAlive(options = {}) {
      try {
        await transport.empty("GET", "/healthz", options);
        return true;
      } catch (error) {
        if (isPlatformError(error, "DAEMON_UNREACHABLE")) return false;
        throw error;
      }
    },
    readiness: async (options = {}) => await transport.json<Readiness>("GET", "/readyz", { ...options, acceptStatus: 503 }),
    async metrics(options = {}) {
      const reply = await transport.stream("GET", "/metrics", { accept: "text/plain", ...options });
      return await transport.text(reply, options.signal);
    },
    openApi: async (options = {}) => await transport.json<unknown>("GET", "/v1/openapi.json", options),
  };
}

/** The daemon and its host: version, readiness, capabilities. */
import type { HostReport, Readiness, Version } from "@fluxvm/contracts";
import { toPlatformError, withDeadline, type CallOptions } from "@fluxvm/core";
import type { BackendProber } from "./backend-prober.ts";
import type { ManagerPorts } from "./ports.ts";

/** A check that takes longer counts as failed. */
const CHECK_TIMEOUT_MS = 5_000;

export class HostOperations {
  readonly #ports: ManagerPorts;
  readonly #prober: BackendProber;

  constructor(ports: ManagerPorts, prober: BackendProber) {
    this.#ports = ports;
    this.#prober = prober;
  }

  version(): Version {
    return this.#ports.hostService.version();
  }

  /** Ready means: a VM could be created now. */
  async readiness(): Promise<Readiness> {
    const own = [
      await this.#check("store", async () => {
        await this.#ports.store.load("meta");
        return undefined;
      }),
      await this.#check("backend", async (signal) => {
        const candidates = await this.#prober.candidates({ signal });
        const usable = candidates.filter((c) => c.probe.usable).map((c) => c.name);
        if (usable.length > 0) return usable.join(", ");
        throw new Error(candidates.map((c) => `${c.name}: ${c.probe.usable ? "" : c.probe.reason}`).join("; ") || "none is configured");
      }),
    ];
    const checks = [...own, ...(await this.#hostChecks())];
    return { ok: checks.every((check) => check.ok), checks };
  }

  async report(options: CallOptions & { readonly refresh: boolean }): Promise<HostReport> {
    return await this.#ports.hostService.report(options);
  }

  async #hostChecks(): Promise<Readiness["checks"]> {
    let checks: Readiness["checks"] = [];
    const failed = await this.#check("host", async () => {
      checks = await this.#ports.hostService.checks();
      return undefined;
    });
    return failed.ok ? checks : [failed];
  }

  async #check(name: string, work: (signal: AbortSignal) => Promise<string | undefined>): Promise<Readiness["checks"][number]> {
    try {
      const detail = await withDeadline({ clock: this.#ports.clock, timeoutMs: CHECK_TIMEOUT_MS, what: `checking ${name}` }, work);
      return { name, ok: true, ...(detail === undefined ? {} : { detail }) };
    } catch (error) {
      const known = toPlatformError(error);
      return { name, ok: false, detail: known.code === "INTERNAL" && error instanceof Error ? error.message : known.message };
    }
  }
}

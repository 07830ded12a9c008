/** What each backend can do on this host. A usable one stays so for the daemon's life; an unusable one is asked again. */
import { toPlatformError, withDeadline, type CallOptions, type Clock } from "@fluxvm/core";
import type { BackendCandidate } from "@fluxvm/engine";
import type { BackendProbe, VmBackend } from "@fluxvm/vmm";

const PROBE_TIMEOUT_MS = 30_000;

export class BackendProber {
  readonly #backends: ReadonlyMap<string, VmBackend>;
  readonly #clock: Clock;
  readonly #usable = new Map<string, BackendProbe>();

  constructor(backends: ReadonlyMap<string, VmBackend>, clock: Clock) {
    this.#backends = backends;
    this.#clock = clock;
  }

  async candidates(options: CallOptions): Promise<readonly BackendCandidate[]> {
    return await Promise.all(
      [...this.#backends].map(async ([name, backend]) => ({
        name,
        capabilities: backend.capabilities,
        probe: await this.#probe(name, backend, options),
      })),
    );
  }

  async #probe(name: string, backend: VmBackend, options: CallOptions): Promise<BackendProbe> {
    const known = this.#usable.get(name);
    if (known !== undefined) return known;
    try {
      const probe = await withDeadline(
        { clock: this.#clock, timeoutMs: PROBE_TIMEOUT_MS, signal: options.signal, what: `probing backend "${name}"` },
        async (signal) => await backend.probe({ signal }),
      );
      if (probe.usable) this.#usable.set(name, probe);
      return probe;
    } catch (error) {
      options.signal.throwIfAborted();
      return { usable: false, reason: toPlatformError(error).message };
    }
  }
}

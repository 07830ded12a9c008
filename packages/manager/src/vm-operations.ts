/**
 * What can be done with VMs. Whatever concerns one VM goes through its driver's mailbox; here is what concerns several:
 * names, user ids, ports, the choice of backend, and how a request and a view look.
 */
import type { CreateVmRequest, PatchVmRequest, StopVmRequest, VmStateName, VmView } from "@fluxvm/contracts";
import { invalidField, isId, newId, PlatformError, randomHex, withDeadline, type CallOptions } from "@fluxvm/core";
import {
  chooseBackend,
  computeDeadline,
  createVm,
  DONE,
  judgeCreate,
  PENDING,
  readNow,
  toVisiblePhase,
  type BackendCandidate,
  type EnginePorts,
  type NewVm,
  type Now,
  type Owner,
  type VmDriver,
  type VmSnapshot,
  type VmSpec,
} from "@fluxvm/engine";
import type { Instruments } from "@fluxvm/telemetry";
import { checkRequest, computeNeeds, resolveSpec } from "./admission.ts";
import type { BackendProber } from "./backend-prober.ts";
import type { Fleet } from "./fleet.ts";
import type { METRICS } from "./metrics.ts";
import type { ManagerPorts } from "./ports.ts";
import { requireAgent, waitForFirstCommand, type ReadyPhases } from "./ready.ts";
import { matchesSelector, parseSelector } from "./selector.ts";
import { toVmView } from "./view.ts";

export type ReadyOption = { readonly ready?: "exec" | undefined };
export type WaitState = VmStateName | "ready" | "gone";

const TOKEN_BYTES = 32;
const MAX_LABELS = 64;
const LOOKUP_TIMEOUT_MS = 10_000;
const CANCEL_TIMEOUT_MS = 60_000;

export interface VmOperationsParts {
  readonly ports: ManagerPorts;
  readonly engine: EnginePorts;
  readonly fleet: Fleet;
  readonly prober: BackendProber;
  readonly metrics: Instruments<typeof METRICS>;
}

export class VmOperations {
  readonly #ports: ManagerPorts;
  readonly #engine: EnginePorts;
  readonly #fleet: Fleet;
  readonly #prober: BackendProber;
  readonly #metrics: Instruments<typeof METRICS>;
  #closed = false;

  constructor(parts: VmOperationsParts) {
    this.#ports = parts.ports;
    this.#engine = parts.engine;
    this.#fleet = parts.fleet;
    this.#prober = parts.prober;
    this.#metrics = parts.metrics;
  }

  /** From here on nothing new is begun. */
  stopAccepting(): void {
    this.#closed = true;
  }

  async create(request: CreateVmRequest, options: CallOptions & ReadyOption): Promise<VmView> {
    const requestedAtMs = this.#ports.clock.bootMs();
    const observe = (outcome: "ok" | "error"): void =>
      this.#metrics.create.observe({ outcome }, (this.#ports.clock.bootMs() - requestedAtMs) / 1000);
    let driver: VmDriver;
    try {
      driver = await this.#createToRunning(request, options);
      observe("ok");
    } catch (error) {
      observe("error");
      throw error;
    }
    return await this.#viewWhenReady(driver, requestedAtMs, options);
  }

  async list(query: {
    readonly name?: string | undefined;
    readonly selector?: string | undefined;
    readonly state?: VmStateName | undefined;
  }): Promise<readonly VmView[]> {
    await Promise.resolve();
    const terms = query.selector === undefined || query.selector === "" ? [] : parseSelector(query.selector);
    const now = this.#now();
    const snapshots = this.#fleet.list().map((driver) => driver.snapshot);
    const wanted = snapshots.filter(
      ({ record, state }) =>
        (query.name === undefined || record.name === query.name) &&
        (query.state === undefined || toVisiblePhase(state) === query.state) &&
        matchesSelector(terms, record.labels),
    );
    wanted.sort((a, b) => a.record.createdAtWallMs - b.record.createdAtWallMs || (a.record.id < b.record.id ? -1 : 1));
    return wanted.map((snapshot) => toVmView(snapshot, now));
  }

  async get(reference: string): Promise<VmView> {
    await Promise.resolve();
    return this.#view(this.#fleet.get(reference).snapshot);
  }

  async patch(reference: string, request: PatchVmRequest, options: CallOptions): Promise<VmView> {
    options.signal.throwIfAborted();
    const driver = this.#fleet.get(reference);
    const { name, labels, ttl_seconds: ttl } = request;
    if (name !== undefined && isId("vm", name)) throw invalidField("name", "a name must not look like a VM's id");
    const change = async (): Promise<VmSnapshot> =>
      await driver.patch((record) => ({
        ...(name === undefined ? {} : { name }),
        ...(labels === undefined ? {} : { labels: mergeLabels(record.labels, labels) }),
        ...(ttl === undefined ? {} : { deadline: ttl === null ? undefined : computeDeadline(ttl * 1000, this.#now()) }),
      }));
    return this.#view(name === undefined ? await change() : await this.#fleet.rename(driver, name, change));
  }

  async start(reference: string, options: CallOptions & ReadyOption): Promise<VmView> {
    const requestedAtMs = this.#ports.clock.bootMs();
    const driver = this.#requireReadyable(reference, options);
    await driver.request({ kind: "start" }, options);
    return await this.#viewWhenReady(driver, requestedAtMs, options);
  }

  async stop(reference: string, request: StopVmRequest, options: CallOptions): Promise<VmView> {
    return this.#view(await this.#fleet.get(reference).request({ kind: "stop", ...this.#grace(request) }, options));
  }

  async restart(reference: string, request: StopVmRequest, options: CallOptions & ReadyOption): Promise<VmView> {
    const requestedAtMs = this.#ports.clock.bootMs();
    const driver = this.#requireReadyable(reference, options);
    await driver.request({ kind: "restart", ...this.#grace(request) }, options);
    return await this.#viewWhenReady(driver, requestedAtMs, options);
  }

  async pause(reference: string, options: CallOptions): Promise<VmView> {
    const driver = this.#fleet.get(reference);
    const { backend, name } = driver.snapshot.record;
    if (this.#engine.backends.get(backend)?.capabilities.pause === false)
      throw new PlatformError("BACKEND_UNSUPPORTED", `Cannot pause VM "${name}": its backend cannot pause`);
    return this.#view(await driver.request({ kind: "pause" }, options));
  }

  async resume(reference: string, options: CallOptions): Promise<VmView> {
    return this.#view(await this.#fleet.get(reference).request({ kind: "resume" }, options));
  }

  async delete(reference: string, options: CallOptions): Promise<void> {
    await this.#fleet.get(reference).request({ kind: "delete", reason: "requested" }, options);
  }

  async wait(
    reference: string,
    states: readonly WaitState[],
    options: CallOptions & { readonly timeoutMs: number },
  ): Promise<VmView | undefined> {
    const driver = this.#fleet.find(reference);
    if (driver === undefined && states.includes("gone")) return undefined;
    const found = this.#fleet.get(reference);
    const { name } = found.snapshot.record;
    const deadline = {
      clock: this.#ports.clock,
      timeoutMs: options.timeoutMs,
      signal: options.signal,
      code: "WAIT_TIMEOUT",
      what: `waiting for VM "${name}" to be ${states.join(" or ")}`,
    } as const;
    const snapshot = await withDeadline(deadline, async (signal) => await found.waitUntil((s) => judgeStates(s, states), { signal }));
    return snapshot.state.phase === "gone" ? undefined : this.#view(snapshot);
  }

  async *logs(
    reference: string,
    query: { readonly lines: number; readonly follow: boolean },
    options: CallOptions,
  ): AsyncGenerator<Uint8Array> {
    const driver = this.#fleet.get(reference);
    const { consoles } = this.#ports;
    if (!query.follow) {
      yield await consoles.tail(driver.id, query.lines, options);
      return;
    }
    const gone = new AbortController();
    const stop = driver.subscribe(({ state }) => {
      if (state.phase === "gone") gone.abort();
    });
    try {
      yield* consoles.follow(driver.id, query.lines, { signal: AbortSignal.any([options.signal, gone.signal]) });
    } catch (error) {
      if (!gone.signal.aborted) throw error;
    } finally {
      stop();
    }
  }

  async #createToRunning(request: CreateVmRequest, options: CallOptions & ReadyOption): Promise<VmDriver> {
    const { signal } = options;
    if (this.#closed) throw new PlatformError("SHUTTING_DOWN", "The daemon is stopping");
    checkRequest(request, this.#ports.config);
    this.#fleet.reserveName(request.name);
    let driver: VmDriver;
    try {
      driver = await this.#begin(request, options);
    } finally {
      this.#fleet.releaseName(request.name); // the VM's own by now, if there is one
    }
    try {
      await driver.waitUntil(judgeCreate, { signal });
      return driver;
    } catch (error) {
      if (signal.aborted) await this.#cancelCreation(driver);
      throw error;
    }
  }

  async #begin(request: CreateVmRequest, options: CallOptions & ReadyOption): Promise<VmDriver> {
    const lookup = { clock: this.#ports.clock, timeoutMs: LOOKUP_TIMEOUT_MS, signal: options.signal, what: "looking up image and kernel" };
    const spec = await withDeadline(lookup, async (signal) => await resolveSpec(request, this.#ports, { signal }));
    if (options.ready === "exec") requireAgent(spec.agent, request.name);
    const backend = await this.#choose(request.backend ?? "auto", spec, options);
    if (spec.network.mode === "user") this.#fleet.requireFreePorts(spec.network.forwards ?? []);
    options.signal.throwIfAborted();
    const owner = this.#fleet.reserveOwner();
    const driver = await createVm(this.#newVm(request, spec, backend, owner), this.#engine, () => this.#fleet.releaseOwner(owner));
    this.#fleet.add(driver);
    return driver;
  }

  #newVm(request: CreateVmRequest, spec: VmSpec, backend: string, owner: Owner): NewVm {
    const { random } = this.#ports;
    const now = this.#now();
    return {
      id: newId("vm", random),
      name: request.name,
      labels: { ...request.labels },
      backend,
      owner,
      mac: spec.network.mode === "none" ? undefined : makeMac(random.bytes(5)),
      token: randomHex(random, TOKEN_BYTES),
      spec,
      createdAtWallMs: now.wallMs,
      deadline: request.ttl_seconds === undefined ? undefined : computeDeadline(request.ttl_seconds * 1000, now),
    };
  }

  async #choose(requested: string, spec: VmSpec, options: CallOptions): Promise<string> {
    const candidates: readonly BackendCandidate[] = await this.#prober.candidates(options);
    return chooseBackend({ requested, preference: this.#ports.config.backends, needs: computeNeeds(spec) }, candidates);
  }

  /** The caller went away before the VM ran: it must not stay behind. */
  async #cancelCreation(driver: VmDriver): Promise<void> {
    const { phase } = driver.snapshot.state;
    if (phase !== "creating" && phase !== "starting") return;
    try {
      await withDeadline(
        { clock: this.#ports.clock, timeoutMs: CANCEL_TIMEOUT_MS, what: "cancelling a creation" },
        async (signal) => await driver.request({ kind: "delete", reason: "create_cancelled" }, { signal }),
      );
    } catch (error) {
      this.#ports.logger.warn({ vmId: driver.id, err: error }, "cancelled creation not removed yet");
    }
  }

  #requireReadyable(reference: string, options: ReadyOption): VmDriver {
    const driver = this.#fleet.get(reference);
    const { name, spec } = driver.snapshot.record;
    if (options.ready === "exec") requireAgent(spec.agent, name);
    return driver;
  }

  async #viewWhenReady(driver: VmDriver, requestedAtMs: number, options: CallOptions & ReadyOption): Promise<VmView> {
    if (options.ready !== "exec") return this.#view(driver.snapshot);
    const { clock, config } = this.#ports;
    const times = await waitForFirstCommand(driver, { requestedAtMs, clock, timeoutMs: config.readyTimeoutMs }, options);
    this.#metrics.firstCommand.observe(times.first_command_ms / 1000);
    await this.#recordFirstCommand(driver.id, times);
    return { ...this.#view(driver.snapshot), ...times };
  }

  /** An event is no reason to fail a request that succeeded. */
  async #recordFirstCommand(vmId: string, data: ReadyPhases): Promise<void> {
    const { clock, logger, store } = this.#ports;
    try {
      await store.commit([{ kind: "event", type: "vm.first_command", subject: vmId, wallMs: clock.wallMs(), data }]);
    } catch (error) {
      logger.warn({ vmId, err: error }, "event not stored");
    }
  }

  #grace(request: StopVmRequest): { readonly force: boolean; readonly graceMs: number } {
    const graceMs = request.timeout_seconds === undefined ? this.#ports.config.stopTimeoutMs : Math.round(request.timeout_seconds * 1000);
    return { force: request.force === true || graceMs === 0, graceMs };
  }

  #view(snapshot: VmSnapshot): VmView {
    return toVmView(snapshot, this.#now());
  }

  #now(): Now {
    return readNow(this.#ports.clock, this.#ports.host.bootId);
  }
}

function judgeStates(snapshot: VmSnapshot, states: readonly WaitState[]): ReturnType<typeof judgeCreate> {
  const phase = toVisiblePhase(snapshot.state);
  if (states.includes(phase)) return DONE;
  if (states.includes("ready") && phase === "running" && snapshot.agent.state === "ready") return DONE;
  if (phase !== "gone") return PENDING;
  return { kind: "error", error: new PlatformError("VM_NOT_FOUND", `VM "${snapshot.record.name}" was deleted meanwhile`) };
}

function mergeLabels(labels: Readonly<Record<string, string>>, change: Readonly<Record<string, string | null>>): Record<string, string> {
  const merged = { ...labels };
  for (const [key, value] of Object.entries(change)) {
    if (value === null) delete merged[key];
    else merged[key] = value;
  }
  if (Object.keys(merged).length > MAX_LABELS) throw invalidField("labels", `a VM has at most ${MAX_LABELS}`);
  return merged;
}

/** A locally administered unicast address, by IEEE 802 bit 1 of its first byte. */
function makeMac(bytes: Uint8Array): string {
  return ["02", ...Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0"))].join(":");
}

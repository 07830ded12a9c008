/**
 * The driver of one VM: a single loop over a bounded mailbox, and the only owner of that VM's state.
 *
 *   requests, patches  --(bound 64, else QUEUE_FULL)--+
 *   outcomes of effects, exits, timers, agent news ---+--> mailbox --> loop: ask `transition`, make it durable,
 *                                                                      publish, start the one effect
 *
 * Invariants:
 * - State changes only in the loop, one message at a time.
 * - At most one effect runs. A new one first aborts the one before it and waits until that has settled; the outcome
 *   of an overtaken effect is dropped, and what it may have made is found by listing.
 * - `required` transitions are published after they are on disk. `later` ones are published at once and written
 *   again until they are, since the world has already changed.
 * - The process's record is on disk before the guest's first instruction.
 *
 * Made by `create-vm.ts` and `adopt.ts`. Knows nothing of other VMs; names, quotas and views are the manager's.
 */
import { assertNever, Mailbox, PlatformError, toPlatformError, type CallOptions } from "@fluxvm/core";
import type { StoreChange } from "@fluxvm/store";
import type { VmProcess } from "@fluxvm/vmm";
import { computeRemainingMs, readNow } from "./deadline.ts";
import { runEffect, type EffectResult } from "./effects.ts";
import type { GuestAgent, GuestAgentState } from "./guest-agent.ts";
import type { EnginePorts } from "./ports.ts";
import { ResetBudget } from "./reset-budget.ts";
import { describeState, getProcessRecord, toStoredState, toVisiblePhase } from "./state-view.ts";
import { RecordWriter } from "./record-writer.ts";
import type { VmRecord } from "./vm-record.ts";
import { transition, type Decision, type VmEffect, type VmEvent, type VmPhase, type VmRequest, type VmState } from "./vm-state.ts";
import { judgeRequest, Waiters, type Judge } from "./waiters.ts";

const MAILBOX_BOUND = 64;
const MAX_WAITERS = 1024;
const EXPIRY_RETRY_MS = 5_000;
/** Timers are re-armed at least this often, since the platform's have an upper bound. */
const MAX_TIMER_MS = 12 * 3_600_000;

/** What can be seen of a VM at one moment. */
export interface VmSnapshot {
  readonly record: VmRecord;
  readonly state: VmState;
  readonly agent: { readonly state: "disabled" | "connecting" | "ready" | "lost"; readonly version: string | undefined };
  /** Why the last request's effect failed. */
  readonly lastError: PlatformError | undefined;
}

/** What may change of a record while its VM lives; `deadline: undefined` removes it. Pure; runs in the driver's own turn. @throws PlatformError to refuse. */
export type RecordChange = (record: VmRecord) => Partial<Pick<VmRecord, "name" | "labels" | "deadline">>;

type Message =
  | { readonly kind: "request"; readonly request: VmRequest; settle(waiting: Promise<VmSnapshot>): void; reject(error: unknown): void }
  | { readonly kind: "patch"; readonly change: RecordChange; resolve(snapshot: VmSnapshot): void; reject(error: unknown): void }
  | { readonly kind: "outcome"; readonly effectId: number; readonly result: EffectResult }
  | { readonly kind: "exited"; readonly process: VmProcess; readonly event: VmEvent & { readonly kind: "ended" } }
  | { readonly kind: "expire" }
  | { readonly kind: "persist" }
  | { readonly kind: "agent" };

export interface DriverStart {
  readonly record: VmRecord;
  readonly state: VmState;
  readonly effect: VmEffect;
  readonly process: VmProcess | undefined;
  /** The record in memory is newer than the one on disk. */
  readonly dirty: boolean;
  /** To be written with it. */
  readonly events?: readonly StoreChange[];
}

export class VmDriver {
  readonly id: string;
  readonly #ports: EnginePorts;
  readonly #mailbox: Mailbox<Message>;
  readonly #waiters: Waiters<VmSnapshot>;
  readonly #listeners = new Set<(snapshot: VmSnapshot) => void>();
  #record: VmRecord;
  #state: VmState;
  #process: VmProcess | undefined;
  #agent: GuestAgent | undefined;
  #stopAgentNews: (() => void) | undefined;
  #effect: { readonly id: number; readonly controller: AbortController; readonly done: Promise<void> } | undefined;
  #nextEffectId = 1;
  #lastError: PlatformError | undefined;
  readonly #writer: RecordWriter;
  readonly #resets = new ResetBudget();
  #changedAtBootMs: number;
  #cancelExpiry: () => void = () => undefined;
  #closed = false;
  /** Never rejects: the loop answers each failure. */
  readonly #loop: Promise<void>;

  constructor(start: DriverStart, ports: EnginePorts) {
    this.id = start.record.id;
    this.#ports = ports;
    this.#mailbox = new Mailbox({ name: `VM "${start.record.name}"`, bound: MAILBOX_BOUND });
    this.#waiters = new Waiters({ name: `VM "${start.record.name}"`, bound: MAX_WAITERS });
    this.#record = start.record;
    this.#state = start.state;
    this.#writer = new RecordWriter({
      vmId: this.id,
      store: ports.store,
      clock: ports.clock,
      logger: ports.logger,
      dirty: start.dirty,
      events: start.events ?? [],
      requestRetry: () => this.#mailbox.postUnbounded({ kind: "persist" }),
    });
    this.#changedAtBootMs = ports.clock.bootMs();
    this.#loop = this.#run();
    if (start.process !== undefined) this.#watch(start.process);
    if (start.state.phase === "running") this.#resets.begin(this.#changedAtBootMs);
    this.#syncAgent();
    this.#startEffect(start.effect);
    this.#armExpiry();
    if (start.dirty) this.#mailbox.postUnbounded({ kind: "persist" });
  }

  get snapshot(): VmSnapshot {
    const agent = this.#agent;
    const known = agent === undefined || agent.state === "closed" ? "connecting" : agent.state;
    return {
      record: this.#record,
      state: this.#state,
      agent: { state: this.#record.spec.agent ? known : "disabled", version: agent?.version },
      lastError: this.#lastError,
    };
  }

  /**
   * Resolves when what was asked for is so: running after a start, gone after a delete. The work goes on when the
   * signal fires. @throws PlatformError denied, or why it failed.
   */
  async request(request: VmRequest, options: CallOptions): Promise<VmSnapshot> {
    options.signal.throwIfAborted();
    const judging = await new Promise<{ readonly waiting: Promise<VmSnapshot> }>((resolve, reject) => {
      // The waiter is put up in the loop's own turn, so that no state between is missed.
      this.#post({ kind: "request", request, settle: (waiting) => resolve({ waiting }), reject });
    });
    return await this.#waiters.detachable(judging.waiting, options.signal);
  }

  /** Resolves when the change is on disk. */
  async patch(change: RecordChange): Promise<VmSnapshot> {
    return await new Promise((resolve, reject) => this.#post({ kind: "patch", change, resolve, reject }));
  }

  /** Resolves or rejects as `judge` says of the first snapshot it has an answer for. @throws the signal's reason. */
  async waitUntil(judge: Judge<VmSnapshot>, options: CallOptions): Promise<VmSnapshot> {
    options.signal.throwIfAborted();
    return await this.#waiters.detachable(this.#waiters.add(judge, this.snapshot), options.signal);
  }

  /** Called after each change. The result stops it. */
  subscribe(listener: (snapshot: VmSnapshot) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The guest's agent while the VM runs. @throws PlatformError `AGENT_DISABLED`, `VM_NOT_RUNNING`. */
  requireGuest(): GuestAgent {
    const { name, spec } = this.#record;
    if (!spec.agent) throw new PlatformError("AGENT_DISABLED", `VM "${name}" has no guest agent`);
    if (this.#state.phase !== "running")
      throw new PlatformError(
        "VM_NOT_RUNNING",
        `Cannot reach the guest of VM "${name}": VM is ${toVisiblePhase(this.#state)}, must be running`,
      );
    if (this.#agent === undefined) throw new PlatformError("AGENT_UNREACHABLE", `The agent of VM "${name}" cannot be reached`);
    return this.#agent;
  }

  /** Lets go of the VM, which runs on. An effect under way is cut off; the next start continues it. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#cancelExpiry();
    this.#effect?.controller.abort(makeStoppingError());
    this.#mailbox.close();
    await this.#loop; // the message in hand
    await this.#effect?.done;
    if (this.#writer.isDirty) await this.#persist();
    this.#writer.stop();
    this.#dropAgent();
    this.#waiters.rejectAll(makeStoppingError());
  }

  #post(message: Message & { reject(error: unknown): void }): void {
    try {
      if (this.#state.phase === "gone") throw new PlatformError("VM_NOT_FOUND", `VM "${this.#record.name}" is deleted`);
      if (this.#closed || !this.#mailbox.post(message)) throw makeStoppingError();
    } catch (error) {
      message.reject(error);
    }
  }

  async #run(): Promise<void> {
    for (;;) {
      const message = await this.#mailbox.take();
      if (message === undefined) return;
      try {
        await this.#handle(message);
      } catch (error) {
        // Operating errors are answered below; this is a fault of ours, and other VMs must not suffer from it.
        this.#ports.logger.error({ vmId: this.id, message: message.kind, err: error }, "vm driver failed on a message");
        if ("reject" in message) message.reject(toPlatformError(error));
      }
    }
  }

  async #handle(message: Message): Promise<void> {
    if (this.#closed) {
      if ("reject" in message) message.reject(makeStoppingError());
      return; // drained only
    }
    switch (message.kind) {
      case "request":
        return await this.#handleRequest(message);
      case "patch":
        return await this.#handlePatch(message);
      case "outcome":
        return await this.#handleOutcome(message.effectId, message.result);
      case "exited":
        return await this.#handleExit(message.process, message.event);
      case "expire":
        return await this.#handleExpiry();
      case "persist":
        return await this.#persist();
      case "agent":
        return this.#publish();
      default:
        return assertNever(message);
    }
  }

  async #handleRequest(message: Message & { readonly kind: "request" }): Promise<void> {
    const { request } = message;
    const decision = transition(this.#state, request);
    if (decision.kind === "denied") {
      message.reject(new PlatformError(decision.code, `Cannot ${request.kind} VM "${this.#record.name}": ${decision.because}`));
      return;
    }
    if (decision.kind === "accepted") {
      try {
        await this.#enter(decision, request.kind === "delete" ? request.reason : `${request.kind}_requested`);
      } catch (error) {
        message.reject(error);
        return;
      }
    }
    message.settle(this.#waiters.add(judgeRequest(request), this.snapshot));
  }

  async #handlePatch(message: Message & { readonly kind: "patch" }): Promise<void> {
    if (this.#state.phase === "deleting" || this.#state.phase === "gone") {
      message.reject(new PlatformError("VM_DELETE_PENDING", `Cannot change VM "${this.#record.name}": VM is being deleted`));
      return;
    }
    let record: VmRecord;
    try {
      record = { ...this.#record, ...message.change(this.#record) };
      await this.#writer.writeFirst(record);
    } catch (error) {
      message.reject(error);
      return;
    }
    this.#record = record;
    this.#armExpiry();
    this.#publish();
    message.resolve(this.snapshot);
  }

  async #handleOutcome(effectId: number, result: EffectResult): Promise<void> {
    if (this.#effect?.id !== effectId) return; // overtaken
    this.#effect = undefined;
    if (result.error !== undefined) this.#lastError = result.error;
    if (result.process !== undefined) this.#watch(result.process);
    const decision = transition(this.#state, result.outcome);
    if (decision.kind !== "accepted") return;
    const reason =
      "reason" in result.outcome
        ? result.outcome.reason
        : result.outcome.kind === "ended"
          ? result.outcome.exit.reason
          : result.outcome.kind;
    try {
      await this.#enter(decision, reason, result);
    } catch (error) {
      // Only a launch's outcome must be on disk before it counts; what was launched is ended again.
      this.#lastError = toPlatformError(error);
      this.#runEffect("abandon");
    }
  }

  async #handleExit(process: VmProcess, event: VmEvent & { readonly kind: "ended" }): Promise<void> {
    if (process !== this.#process) return;
    const { phase } = this.#state;
    if (phase === "stopping" || phase === "deleting") return; // the effect under way sees it too, and answers
    if (getProcessRecord(this.#state) === undefined) return; // launched, but its record could not be stored
    const resetLoop = event.exit.reason === "guest_reset" && !this.#resets.spend(this.#ports.clock.bootMs());
    const decision = transition(this.#state, { ...event, resetLoop });
    if (decision.kind !== "accepted") return;
    this.#lastError = new PlatformError("VM_EXITED", `VM "${this.#record.name}" ended: ${event.exit.message ?? event.exit.reason}`);
    this.#effect?.controller.abort(this.#lastError);
    await this.#enter(decision, event.exit.reason);
  }

  async #handleExpiry(): Promise<void> {
    const { deadline } = this.#record;
    if (deadline === undefined || computeRemainingMs(deadline, this.#now()) > 0) {
      this.#armExpiry();
      return;
    }
    const decision = transition(this.#state, { kind: "delete", reason: "expired" });
    if (decision.kind !== "accepted") return;
    try {
      await this.#enter(decision, "expired");
    } catch (error) {
      this.#ports.logger.error({ vmId: this.id, err: error }, "expired vm could not be deleted, will try again");
      this.#cancelExpiry = this.#ports.clock.schedule(EXPIRY_RETRY_MS, () => this.#mailbox.postUnbounded({ kind: "expire" }));
    }
  }

  /** Goes into the decision's state. @throws PlatformError of the store when it had to be on disk first; nothing has changed then. */
  async #enter(decision: Decision & { readonly kind: "accepted" }, reason: string, result?: EffectResult): Promise<void> {
    const before = this.#state;
    const { state, effect, durability } = decision;
    const record: VmRecord = {
      ...this.#record,
      ...(result?.rootDisk === undefined ? {} : { rootDisk: result.rootDisk }),
      ...(state.phase === "running" && before.phase === "starting" ? { startedAtWallMs: this.#ports.clock.wallMs() } : {}),
      bootId: this.#ports.host.bootId,
      state: toStoredState(state),
    };
    const visible = { from: toVisiblePhase(before), to: toVisiblePhase(state) };
    const durationMs = Math.round((this.#ports.clock.bootMs() - this.#changedAtBootMs) * 10) / 10;
    const events = visible.from === visible.to || state.phase === "gone" ? [] : [this.#eventOf(state, visible, reason, durationMs)];
    if (durability === "required") await this.#writer.writeFirst(record, events);
    this.#record = record;
    this.#state = state;
    if (durability === "later") await this.#writer.writeSoon(record, events);
    if (durability === "never" && events.length > 0) await this.#writer.writeEvents(events);
    if (visible.from !== visible.to) this.#announce(visible, reason, durationMs);
    if (getProcessRecord(state) === undefined && state.phase !== "stopping" && state.phase !== "deleting") this.#process = undefined;
    if (effect !== "none" && effect !== "teardown" && state.phase !== "stopping") this.#lastError = undefined;
    this.#countResets(before);
    this.#syncAgent();
    this.#startEffect(effect);
    this.#publish();
  }

  #countResets(before: VmState): void {
    const { phase } = this.#state;
    if (phase === "running" && before.phase === "starting") this.#resets.begin(this.#ports.clock.bootMs());
    if (phase === "stopping" || phase === "stopped" || phase === "failed") this.#resets.clear();
  }

  #announce(visible: { readonly from: VmPhase; readonly to: VmPhase }, reason: string, durationMs: number): void {
    this.#changedAtBootMs = this.#ports.clock.bootMs();
    const { from, to } = visible;
    this.#ports.logger.info({ vmId: this.id, vmName: this.#record.name, from, to, reason, durationMs }, "vm transition");
    this.#ports.observer.transition({ vmId: this.id, from, to, reason, durationMs });
  }

  #eventOf(state: VmState, visible: { readonly from: VmPhase; readonly to: VmPhase }, reason: string, durationMs: number): StoreChange {
    const { message } = describeState(state);
    const data = { ...visible, reason, durationMs, name: this.#record.name, ...(message === undefined ? {} : { message }) };
    return { kind: "event", type: `vm.${visible.to}`, subject: this.id, wallMs: this.#ports.clock.wallMs(), data };
  }

  async #persist(): Promise<void> {
    if (this.#state.phase === "deleting" || this.#state.phase === "gone") return; // the teardown has the last word
    await this.#writer.writeSoon(this.#record);
  }

  #startEffect(effect: VmEffect): void {
    if (effect !== "none" && !this.#closed) this.#runEffect(effect);
  }

  #runEffect(effect: Exclude<VmEffect, "none"> | "abandon"): void {
    const previous = this.#effect;
    previous?.controller.abort(new PlatformError("REQUEST_CANCELLED", `Overtaken by ${effect}`));
    const controller = new AbortController();
    const id = this.#nextEffectId;
    this.#nextEffectId += 1;
    const run = async (): Promise<void> => {
      await previous?.done;
      try {
        controller.signal.throwIfAborted();
        const context = { ports: this.#ports, record: this.#record, state: this.#state, process: this.#process, agent: this.#agent };
        const result = await runEffect(effect, context, controller.signal);
        this.#mailbox.postUnbounded({ kind: "outcome", effectId: id, result });
      } catch (error) {
        if (!controller.signal.aborted) this.#ports.logger.error({ vmId: this.id, effect, err: error }, "vm effect failed");
      }
    };
    this.#effect = { id, controller, done: run() };
  }

  #watch(process: VmProcess): void {
    this.#process = process;
    void process.exited.then((exit) => {
      // never rejects, by the backend's contract
      this.#mailbox.postUnbounded({ kind: "exited", process, event: { kind: "ended", exit, atWallMs: this.#ports.clock.wallMs() } });
    });
  }

  /** An agent connection exists exactly while there is a machine that may run. */
  #syncAgent(): void {
    const endpoint = getProcessRecord(this.#state)?.agentEndpoint;
    if (endpoint === undefined || !this.#record.spec.agent || this.#state.phase === "starting") {
      if (this.#state.phase !== "deleting") this.#dropAgent(); // a teardown closes it itself
      return;
    }
    if (this.#agent !== undefined || this.#state.phase === "stopping") return;
    this.#agent = this.#ports.guests.connect({ vmId: this.id, endpoint, token: this.#record.token });
    this.#stopAgentNews = this.#agent.subscribe((state: GuestAgentState) => {
      if (state === "ready") this.#resets.clear();
      if (state !== "closed") this.#mailbox.postUnbounded({ kind: "agent" });
    });
  }

  #dropAgent(): void {
    const agent = this.#agent;
    this.#stopAgentNews?.();
    this.#stopAgentNews = undefined;
    this.#agent = undefined;
    agent?.close().catch((error: unknown) => this.#ports.logger.debug({ vmId: this.id, err: error }, "agent close failed"));
  }

  #armExpiry(): void {
    this.#cancelExpiry();
    const { deadline } = this.#record;
    if (deadline === undefined || this.#state.phase === "gone") return;
    const delayMs = Math.min(Math.max(0, computeRemainingMs(deadline, this.#now())), MAX_TIMER_MS);
    this.#cancelExpiry = this.#ports.clock.schedule(delayMs, () => this.#mailbox.postUnbounded({ kind: "expire" }));
  }

  #now(): ReturnType<typeof readNow> {
    return readNow(this.#ports.clock, this.#ports.host.bootId);
  }

  #publish(): void {
    const { snapshot } = this;
    if (snapshot.state.phase === "gone") {
      this.#cancelExpiry();
      this.#writer.stop();
      this.#dropAgent();
      this.#mailbox.close();
    }
    this.#waiters.judge(snapshot);
    for (const listener of this.#listeners) listener(snapshot);
  }
}

function makeStoppingError(): PlatformError {
  return new PlatformError("SHUTTING_DOWN", "The daemon is stopping");
}

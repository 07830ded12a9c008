/**
 * Callers waiting for a VM to come into some state. Each is judged on every published snapshot until its judge has an
 * answer. Bounded; a caller whose signal fires leaves, and its entry goes with the next answer.
 */
import { abortable, assertNever, PlatformError } from "@fluxvm/core";
import type { VmSnapshot } from "./vm-driver.ts";
import type { VmRequest } from "./vm-state.ts";

export type Verdict = { readonly kind: "pending" } | { readonly kind: "done" } | { readonly kind: "error"; readonly error: PlatformError };
export type Judge<Snapshot> = (snapshot: Snapshot) => Verdict;

export const PENDING: Verdict = { kind: "pending" };
export const DONE: Verdict = { kind: "done" };

interface Entry<Snapshot> {
  readonly judge: Judge<Snapshot>;
  resolve(snapshot: Snapshot): void;
  reject(error: unknown): void;
}

export class Waiters<Snapshot> {
  readonly #name: string;
  readonly #bound: number;
  readonly #entries = new Map<Promise<Snapshot>, Entry<Snapshot>>();

  constructor(options: { readonly name: string; readonly bound: number }) {
    this.#name = options.name;
    this.#bound = options.bound;
  }

  /** Judged at once, then on each `judge()`. The promise rejects with `QUEUE_FULL` at the bound. */
  add(judge: Judge<Snapshot>, now: Snapshot): Promise<Snapshot> {
    const { promise, resolve, reject } = Promise.withResolvers<Snapshot>();
    promise.catch(() => undefined); // whoever waits handles it; nobody may be waiting any more
    if (this.#entries.size >= this.#bound)
      reject(new PlatformError("QUEUE_FULL", `Too many callers wait for ${this.#name}`, { retryAfterMs: 1000 }));
    else this.#judgeOne(promise, { judge, resolve, reject }, now);
    return promise;
  }

  judge(snapshot: Snapshot): void {
    for (const [promise, entry] of this.#entries) this.#judgeOne(promise, entry, snapshot);
  }

  rejectAll(error: PlatformError): void {
    for (const entry of this.#entries.values()) entry.reject(error);
    this.#entries.clear();
  }

  /** Waits for `promise`, and forgets its entry when the signal fires first. */
  async detachable(promise: Promise<Snapshot>, signal: AbortSignal): Promise<Snapshot> {
    try {
      return await abortable(promise, signal);
    } finally {
      this.#entries.delete(promise);
    }
  }

  #judgeOne(promise: Promise<Snapshot>, entry: Entry<Snapshot>, snapshot: Snapshot): void {
    const verdict = entry.judge(snapshot);
    if (verdict.kind === "pending") {
      this.#entries.set(promise, entry);
      return;
    }
    this.#entries.delete(promise);
    if (verdict.kind === "done") entry.resolve(snapshot);
    else entry.reject(verdict.error);
  }
}

/** When a request is answered. */
export function judgeRequest(request: VmRequest): Judge<VmSnapshot> {
  switch (request.kind) {
    case "start":
      return judgeStart;
    case "restart":
      return (s) => (s.state.phase === "stopping" && s.state.goal.kind === "restart" ? PENDING : judgeStart(s));
    case "stop":
      return judgeStop;
    case "pause":
      return (s) => (s.state.phase === "paused" ? DONE : s.state.phase === "pausing" ? PENDING : fail(s, "pause"));
    case "resume":
      return (s) => (s.state.phase === "running" ? DONE : s.state.phase === "resuming" ? PENDING : fail(s, "resume"));
    case "delete":
      return (s) => (s.state.phase === "gone" ? DONE : PENDING);
    default:
      return assertNever(request);
  }
}

/** A creation is over when the VM runs, or was stopped by somebody else's request, or is gone without a trace. */
export const judgeCreate: Judge<VmSnapshot> = (s) => {
  const { phase } = s.state;
  if (phase === "creating" || phase === "starting" || phase === "deleting") return PENDING;
  return phase === "gone" ? fail(s, "create") : DONE;
};

const judgeStart: Judge<VmSnapshot> = (s) => {
  const { phase } = s.state;
  if (phase === "creating" || phase === "starting" || phase === "resuming") return PENDING;
  return phase === "running" || phase === "pausing" || phase === "paused" ? DONE : fail(s, "start");
};

const judgeStop: Judge<VmSnapshot> = (s) => {
  const { phase } = s.state;
  return phase === "stopped" || phase === "failed" || phase === "gone" ? DONE : PENDING;
};

function fail(snapshot: VmSnapshot, verb: string): Verdict {
  const { record, state, lastError } = snapshot;
  return { kind: "error", error: lastError ?? explain(`Cannot ${verb} VM "${record.name}"`, snapshot, state.phase) };
}

function explain(what: string, snapshot: VmSnapshot, phase: VmSnapshot["state"]["phase"]): PlatformError {
  const { state } = snapshot;
  switch (phase) {
    case "stopping":
      return new PlatformError("VM_STOP_PENDING", `${what}: VM is being stopped`);
    case "deleting":
    case "gone":
      return new PlatformError("VM_DELETE_PENDING", `${what}: VM was deleted`);
    case "failed":
      return new PlatformError("VM_FAILED", `${what}: ${state.phase === "failed" ? (state.message ?? state.reason) : "VM has failed"}`);
    case "creating":
    case "starting":
    case "running":
    case "pausing":
    case "paused":
    case "resuming":
    case "stopped":
      return new PlatformError("VM_EXITED", `${what}: VM is ${phase}`);
    default:
      return assertNever(phase);
  }
}

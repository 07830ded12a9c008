/**
 * The states of a VM and the one function that says how they follow each other.
 *
 *                    create
 *                      v
 *                 [creating] --launch_failed / delete--------------------+
 *                      | launched                                        |
 *                      v                                                 |
 *     +---start---> [starting] --(fresh) failed, ended, delete--------+  |
 *     |                | booted     \                                 |  |
 *     |                v             \ failed, ended                  |  |
 *     |  +-resume_failed..           v                                |  |
 *     |  |         [running] ---> [failed] <--ended (crash, panic)    |  |
 *     |  |         |   ^   \         | start, restart -> [starting]   |  |
 *     |  |    pause|   |    \ ended  |                                |  |
 *     |  |         v   |     v       |                                |  |
 *     |  |  [pausing]  |  [stopped] -+--------------------------------+  |
 *     |  |  paused |   |    |   ^                                     |  |
 *     |  |         v   |    |   | ended                               |  |
 *     |  +--> [paused] | resumed  [stopping] <-- stop, restart: from  |  |
 *     |      resume|   |    |   |  starting, running, pausing, paused,|  |
 *     |            v   |    |   |  resuming, and from creating once   |  |
 *     |        [resuming]   |   |  launched                           |  |
 *     +---------------------+   +-- ended, to restart -> [starting]   |  |
 *                                                                     |  |
 *          the guest reset: starting, running, pausing, resuming      |  |
 *            -> [starting], launched anew; once too often in a row    |  |
 *            -> [failed] reset_loop                                   v  v
 *          delete: from every state, also when the TTL is over --> [deleting] --removed--> [gone]
 *          adopted: starting, running and paused become what the machine is seen to do
 *
 * Invariants: `process` is what identifies the VMM and is durable before the guest runs its first instruction.
 * `fresh` marks a start nobody was told of yet: if it fails, the VM goes as if it had never been. A guest that reboots
 * gets a new process on the same disks, so that its configuration, clock and entropy are fresh. A request is
 * accepted, ignored (it is already so, or on its way) or denied with a code. Outcomes that do not fit are stale
 * (the effect was overtaken) and ignored.
 *
 * Called by `vm-driver.ts` alone. Does not do anything, and knows no time, no store and no backend.
 */
import { assertNever, type ErrorCode } from "@fluxvm/core";
import type { VmExit, VmProcessRecord } from "@fluxvm/vmm";

export interface Ending {
  readonly reason: string;
  readonly message?: string | undefined;
}

/** What stopping leads to. */
export type StopGoal = { readonly kind: "stopped" } | { readonly kind: "restart" } | ({ readonly kind: "failed" } & Ending);

export type VmState =
  | { readonly phase: "creating"; readonly stopRequested: boolean }
  | { readonly phase: "starting"; readonly fresh: boolean; readonly process?: VmProcessRecord | undefined }
  | { readonly phase: "running"; readonly process: VmProcessRecord }
  | { readonly phase: "pausing"; readonly process: VmProcessRecord }
  | { readonly phase: "paused"; readonly process: VmProcessRecord }
  | { readonly phase: "resuming"; readonly process: VmProcessRecord }
  | {
      readonly phase: "stopping";
      readonly process?: VmProcessRecord | undefined;
      readonly goal: StopGoal;
      readonly force: boolean;
      readonly graceMs: number;
    }
  | ({ readonly phase: "stopped"; readonly atWallMs: number } & Ending)
  | ({ readonly phase: "failed"; readonly atWallMs: number } & Ending)
  | { readonly phase: "deleting"; readonly reason: DeleteReason }
  | { readonly phase: "gone"; readonly reason: DeleteReason };

export type VmPhase = VmState["phase"];
export type DeleteReason = "requested" | "expired" | "create_failed" | "create_cancelled";

/** States as they are stored. Pausing is stored as running, and resuming as paused: the machine itself knows better. */
export type StoredVmState = Exclude<VmState, { readonly phase: "pausing" | "resuming" | "gone" }>;
export const VM_PHASES: readonly StoredVmState["phase"][] = [
  "creating",
  "starting",
  "running",
  "paused",
  "stopping",
  "stopped",
  "failed",
  "deleting",
];

export type VmRequest =
  | { readonly kind: "start" }
  | { readonly kind: "stop"; readonly force: boolean; readonly graceMs: number }
  | { readonly kind: "restart"; readonly force: boolean; readonly graceMs: number }
  | { readonly kind: "pause" }
  | { readonly kind: "resume" }
  | { readonly kind: "delete"; readonly reason: DeleteReason };

/** How an effect, or the machine by itself, ended. */
export type VmOutcome =
  | { readonly kind: "launched"; readonly process: VmProcessRecord }
  | ({ readonly kind: "launch_failed"; readonly atWallMs: number } & Ending)
  | { readonly kind: "booted" }
  | ({ readonly kind: "boot_failed" } & Ending)
  | { readonly kind: "paused" }
  /** `unknown`: whether it took effect could not be found out. */
  | { readonly kind: "pause_failed"; readonly seen: SeenAfterFailure }
  | { readonly kind: "resumed" }
  | { readonly kind: "resume_failed"; readonly seen: SeenAfterFailure }
  /** The process is gone. `resetLoop`: by a reset too many, so that it may not start again by itself. */
  | { readonly kind: "ended"; readonly exit: VmExit; readonly atWallMs: number; readonly resetLoop?: boolean | undefined }
  | { readonly kind: "removed" }
  /** A machine that did not answer at adoption does now. */
  | { readonly kind: "adopted"; readonly seen: "prelaunch" | "running" | "paused" };

type SeenAfterFailure = "gone" | "prelaunch" | "running" | "paused" | "ended" | "unknown";

export type VmEvent = VmRequest | VmOutcome;

/** What the driver does on entering a state. A new effect overtakes the one under way. */
export type VmEffect = "none" | "launch" | "boot" | "pause" | "resume" | "end" | "teardown" | "adopt";

/**
 * `required`: the state is entered only once it is on disk. `later`: the world has already changed, and a crash
 * before the write is found out at adoption. `never`: what is on disk says the same.
 */
export type Durability = "required" | "later" | "never";

export type Decision =
  | { readonly kind: "accepted"; readonly state: VmState; readonly effect: VmEffect; readonly durability: Durability }
  | { readonly kind: "ignored" }
  | { readonly kind: "denied"; readonly code: ErrorCode; readonly because: string };

type Accepted = Decision & { readonly kind: "accepted" };

const IGNORED: Decision = { kind: "ignored" };

export function transition(state: VmState, event: VmEvent): Decision {
  switch (event.kind) {
    case "start":
      return decideStart(state);
    case "stop":
      return decideStop(state, event);
    case "restart":
      return decideRestart(state, event);
    case "pause":
      return decidePause(state);
    case "resume":
      return decideResume(state);
    case "delete":
      return decideDelete(state, event.reason);
    default:
      return applyOutcome(state, event);
  }
}

function decideStart(state: VmState): Decision {
  switch (state.phase) {
    case "stopped":
    case "failed":
      return accept({ phase: "starting", fresh: false }, "launch", "required");
    case "creating":
    case "starting":
    case "running":
    case "resuming":
      return IGNORED;
    case "pausing":
    case "paused":
      return deny("VM_STATE_DENIED", `VM is ${state.phase}; resume it instead`);
    case "stopping":
      return deny("VM_STOP_PENDING", "VM is being stopped");
    case "deleting":
    case "gone":
      return denyDeleted(state);
    default:
      return assertNever(state);
  }
}

function decideStop(state: VmState, request: { readonly force: boolean; readonly graceMs: number }): Decision {
  switch (state.phase) {
    case "creating":
      return state.stopRequested ? IGNORED : accept({ phase: "creating", stopRequested: true }, "none", "never");
    case "starting":
    case "running":
    case "pausing":
    case "paused":
    case "resuming":
      return accept(
        { phase: "stopping", process: state.process, goal: { kind: "stopped" }, force: request.force, graceMs: request.graceMs },
        "end",
        "later",
      );
    case "stopping":
      return decideStopAgain(state, request.force);
    case "stopped":
    case "failed":
    case "deleting":
    case "gone":
      return IGNORED;
    default:
      return assertNever(state);
  }
}

/** A forced stop overtakes a graceful one; a stop turns a restart into a stop. */
function decideStopAgain(state: VmState & { readonly phase: "stopping" }, force: boolean): Decision {
  const goal: StopGoal = state.goal.kind === "restart" ? { kind: "stopped" } : state.goal;
  if (force && !state.force) return accept({ ...state, goal, force: true }, "end", "later");
  return goal === state.goal ? IGNORED : accept({ ...state, goal }, "none", "later");
}

function decideRestart(state: VmState, request: { readonly force: boolean; readonly graceMs: number }): Decision {
  switch (state.phase) {
    case "running":
    case "pausing":
    case "paused":
    case "resuming":
      return accept(
        { phase: "stopping", process: state.process, goal: { kind: "restart" }, force: request.force, graceMs: request.graceMs },
        "end",
        "required",
      );
    case "stopped":
    case "failed":
      return decideStart(state);
    case "creating":
    case "starting":
      return deny("VM_STATE_DENIED", `VM is ${state.phase}`);
    case "stopping":
      return deny("VM_STOP_PENDING", "VM is being stopped");
    case "deleting":
    case "gone":
      return denyDeleted(state);
    default:
      return assertNever(state);
  }
}

function decidePause(state: VmState): Decision {
  switch (state.phase) {
    case "running":
      return accept({ phase: "pausing", process: state.process }, "pause", "never");
    case "pausing":
    case "paused":
      return IGNORED;
    case "resuming":
      return deny("VM_STATE_DENIED", "VM is being resumed");
    case "creating":
    case "starting":
    case "stopped":
    case "failed":
      return deny("VM_NOT_RUNNING", `VM is ${state.phase}, must be running`);
    case "stopping":
      return deny("VM_STOP_PENDING", "VM is being stopped");
    case "deleting":
    case "gone":
      return denyDeleted(state);
    default:
      return assertNever(state);
  }
}

function decideResume(state: VmState): Decision {
  switch (state.phase) {
    case "paused":
      return accept({ phase: "resuming", process: state.process }, "resume", "never");
    case "running":
    case "resuming":
      return IGNORED;
    case "pausing":
      return deny("VM_STATE_DENIED", "VM is being paused");
    case "creating":
    case "starting":
    case "stopped":
    case "failed":
      return deny("VM_NOT_PAUSED", `VM is ${state.phase}, must be paused`);
    case "stopping":
      return deny("VM_STOP_PENDING", "VM is being stopped");
    case "deleting":
    case "gone":
      return denyDeleted(state);
    default:
      return assertNever(state);
  }
}

function decideDelete(state: VmState, reason: DeleteReason): Decision {
  switch (state.phase) {
    case "deleting":
    case "gone":
      return IGNORED;
    case "creating":
    case "starting":
    case "running":
    case "pausing":
    case "paused":
    case "resuming":
    case "stopping":
    case "stopped":
    case "failed":
      return accept({ phase: "deleting", reason }, "teardown", "required");
    default:
      return assertNever(state);
  }
}

function applyOutcome(state: VmState, outcome: VmOutcome): Decision {
  switch (state.phase) {
    case "creating":
      return applyToCreating(state, outcome);
    case "starting":
      return applyToStarting(state, outcome);
    case "running":
      if (outcome.kind === "adopted" && outcome.seen === "paused")
        return accept({ phase: "paused", process: state.process }, "none", "later");
      return outcome.kind === "ended" ? endLive(outcome) : IGNORED;
    case "pausing":
      if (outcome.kind === "paused") return accept({ phase: "paused", process: state.process }, "none", "later");
      if (outcome.kind === "pause_failed")
        return accept({ phase: "running", process: state.process }, outcome.seen === "unknown" ? "adopt" : "none", "never");
      return outcome.kind === "ended" ? endLive(outcome) : IGNORED;
    case "paused":
      if (outcome.kind === "adopted" && outcome.seen === "running")
        return accept({ phase: "running", process: state.process }, "none", "later");
      return outcome.kind === "ended" ? end(outcome) : IGNORED;
    case "resuming":
      if (outcome.kind === "resumed") return accept({ phase: "running", process: state.process }, "none", "later");
      if (outcome.kind === "resume_failed")
        return accept({ phase: "paused", process: state.process }, outcome.seen === "unknown" ? "adopt" : "none", "never");
      return outcome.kind === "ended" ? endLive(outcome) : IGNORED;
    case "stopping":
      return outcome.kind === "ended" ? applyToStopping(state, outcome) : IGNORED;
    case "deleting":
      return outcome.kind === "removed" ? accept({ phase: "gone", reason: state.reason }, "none", "never") : IGNORED;
    case "stopped":
    case "failed":
    case "gone":
      return IGNORED;
    default:
      return assertNever(state);
  }
}

function applyToCreating(state: VmState & { readonly phase: "creating" }, outcome: VmOutcome): Decision {
  if (outcome.kind === "launch_failed") return accept({ phase: "deleting", reason: "create_failed" }, "teardown", "never");
  if (outcome.kind !== "launched") return IGNORED;
  const { process } = outcome;
  if (!state.stopRequested) return accept({ phase: "starting", fresh: true, process }, "boot", "required");
  return accept({ phase: "stopping", process, goal: { kind: "stopped" }, force: true, graceMs: 0 }, "end", "required");
}

function applyToStarting(state: VmState & { readonly phase: "starting" }, outcome: VmOutcome): Decision {
  const undo = accept({ phase: "deleting", reason: "create_failed" }, "teardown", "never");
  switch (outcome.kind) {
    case "launched":
      return state.process === undefined ? accept({ ...state, process: outcome.process }, "boot", "required") : IGNORED;
    case "launch_failed": {
      if (state.fresh) return undo;
      const { reason, message, atWallMs } = outcome;
      return accept({ phase: "failed", reason, message, atWallMs }, "none", "later");
    }
    case "booted":
      return state.process === undefined ? IGNORED : accept({ phase: "running", process: state.process }, "none", "later");
    case "boot_failed": {
      if (state.fresh) return undo;
      const goal: StopGoal = { kind: "failed", reason: outcome.reason, message: outcome.message };
      return accept({ phase: "stopping", process: state.process, goal, force: true, graceMs: 0 }, "end", "later");
    }
    case "ended": {
      if (state.process === undefined) return IGNORED; // the one before it
      const next = endLive(outcome);
      if (!state.fresh) return next;
      return next.state.phase === "starting" ? { ...next, state: { phase: "starting", fresh: true } } : undo;
    }
    case "adopted":
      if (state.process === undefined) return IGNORED;
      return outcome.seen === "prelaunch"
        ? accept(state, "boot", "never")
        : accept({ phase: outcome.seen, process: state.process }, "none", "later");
    case "paused":
    case "pause_failed":
    case "resumed":
    case "resume_failed":
    case "removed":
      return IGNORED;
    default:
      return assertNever(outcome);
  }
}

function applyToStopping(
  state: VmState & { readonly phase: "stopping" },
  outcome: { readonly exit: VmExit; readonly atWallMs: number },
): Decision {
  const { goal } = state;
  const { exit, atWallMs } = outcome;
  switch (goal.kind) {
    case "stopped":
      return accept({ phase: "stopped", reason: exit.reason, message: exit.message, atWallMs }, "none", "later");
    case "restart":
      return accept({ phase: "starting", fresh: false }, "launch", "later");
    case "failed":
      return accept({ phase: "failed", reason: goal.reason, message: goal.message, atWallMs }, "none", "later");
    default:
      return assertNever(goal);
  }
}

/** As `end`, but for a guest that was to run: when it rebooted, it starts again. */
function endLive(outcome: VmOutcome & { readonly kind: "ended" }): Accepted {
  const { exit, atWallMs, resetLoop } = outcome;
  if (exit.reason !== "guest_reset") return end(outcome);
  if (resetLoop !== true) return accept({ phase: "starting", fresh: false }, "launch", "later");
  const message = "The guest reset again and again without coming up";
  return accept({ phase: "failed", reason: "reset_loop", message, atWallMs }, "none", "later");
}

/** A machine that ended by itself: its guest's own doing is a stop, anything else a failure. */
function end(outcome: VmOutcome & { readonly kind: "ended" }): Accepted {
  const { exit, atWallMs } = outcome;
  const ending = { reason: exit.reason, message: exit.message, atWallMs };
  switch (exit.reason) {
    case "guest_shutdown":
    case "guest_reset":
      return accept({ phase: "stopped", ...ending }, "none", "later");
    case "killed": // by somebody else: what we kill is stopping
    case "guest_panic":
    case "crashed":
    case "unknown":
      return accept({ phase: "failed", ...ending }, "none", "later");
    default:
      return assertNever(exit.reason);
  }
}

function accept(state: VmState, effect: VmEffect, durability: Durability): Accepted {
  return { kind: "accepted", state, effect, durability };
}

function deny(code: ErrorCode, because: string): Decision {
  return { kind: "denied", code, because };
}

function denyDeleted(state: VmState & { readonly phase: "deleting" | "gone" }): Decision {
  return state.phase === "deleting" ? deny("VM_DELETE_PENDING", "VM is being deleted") : deny("VM_NOT_FOUND", "VM is deleted");
}

/**
 * What to do with a VM found in the store when the daemon starts: pure, from what the record says and what the
 * machine is seen to do. The engine has made nothing yet; the effect runs once the driver does.
 *
 *   recorded     machine seen          becomes
 *   creating     whatever              deleting: nobody was told of it
 *   starting     no process recorded   starting again, or stopped if the host rebooted
 *   starting     prelaunch             starting: boot
 *   starting     gone, fresh           deleting: nobody was told of it
 *   any running  running, paused       that
 *   any running  gone                  stopped (host_rebooted), else failed (unknown)
 *   stopping     there                 stopping: end
 *   stopping     gone                  what stopping leads to
 *   stopped, failed                    as they are
 *   deleting     whatever              deleting: tear down
 *
 * `ended` (the guest is down, the VMM waits to be read) counts as running: `exited` settles and says why.
 * `unknown` (the VMM does not answer yet) is asked again in the background; it is never killed for being slow.
 */
import { assertNever } from "@fluxvm/core";
import { transition, type StoredVmState, type VmEffect, type VmState } from "./vm-state.ts";

export type SeenMachine = "gone" | "prelaunch" | "running" | "paused" | "ended" | "unknown";

export interface AdoptionPlan {
  readonly state: VmState;
  readonly effect: VmEffect;
  /** Empty: nothing changed. */
  readonly reason: string;
}

export interface AdoptionFacts {
  readonly seen: SeenMachine;
  /** Whether the recorded process belongs to an earlier boot of the host. */
  readonly rebooted: boolean;
  readonly wallMs: number;
}

export function planAdoption(state: StoredVmState, facts: AdoptionFacts): AdoptionPlan {
  switch (state.phase) {
    case "creating":
      return { state: { phase: "deleting", reason: "create_failed" }, effect: "teardown", reason: "daemon_restarted" };
    case "starting":
      return planStarting(state, facts);
    case "running":
    case "paused":
      return planLive(state, facts);
    case "stopping":
      return planStopping(state, facts);
    case "stopped":
    case "failed":
      return { state, effect: "none", reason: "" };
    case "deleting":
      return { state, effect: "teardown", reason: "" };
    default:
      return assertNever(state);
  }
}

function planStarting(state: StoredVmState & { readonly phase: "starting" }, facts: AdoptionFacts): AdoptionPlan {
  if (state.process === undefined) return facts.rebooted ? stoppedByReboot(facts) : { state, effect: "launch", reason: "" };
  if (facts.seen === "gone" && state.fresh)
    return { state: { phase: "deleting", reason: "create_failed" }, effect: "teardown", reason: "vanished" };
  return planLive({ ...state, process: state.process }, facts);
}

function planLive(
  state: StoredVmState & { readonly phase: "starting" | "running" | "paused" } & Required<
      Pick<VmState & { readonly phase: "running" }, "process">
    >,
  facts: AdoptionFacts,
): AdoptionPlan {
  const { process } = state;
  switch (facts.seen) {
    case "gone":
      if (facts.rebooted) return stoppedByReboot(facts);
      return {
        state: { phase: "failed", reason: "unknown", message: "The VMM's process ended while the daemon was away", atWallMs: facts.wallMs },
        effect: "none",
        reason: "unknown",
      };
    case "prelaunch":
      return {
        state: { phase: "starting", fresh: state.phase === "starting" && state.fresh, process },
        effect: "boot",
        reason: state.phase === "starting" ? "" : "adopted",
      };
    case "running":
    case "ended":
      return { state: { phase: "running", process }, effect: "none", reason: state.phase === "running" ? "" : "adopted" };
    case "paused":
      return { state: { phase: "paused", process }, effect: "none", reason: state.phase === "paused" ? "" : "adopted" };
    case "unknown":
      return { state, effect: "adopt", reason: "" };
    default:
      return assertNever(facts.seen);
  }
}

function planStopping(state: StoredVmState & { readonly phase: "stopping" }, facts: AdoptionFacts): AdoptionPlan {
  if (facts.rebooted && state.goal.kind === "restart") return stoppedByReboot(facts);
  if (facts.seen !== "gone" || state.process === undefined) return { state, effect: "end", reason: "" };
  const exit = { reason: "unknown", message: "The VMM's process ended while the daemon was away" } as const;
  const next = transition(state, { kind: "ended", exit: facts.rebooted ? { reason: "killed" } : exit, atWallMs: facts.wallMs });
  return next.kind === "accepted" ? { state: next.state, effect: next.effect, reason: exit.reason } : { state, effect: "end", reason: "" };
}

function stoppedByReboot(facts: AdoptionFacts): AdoptionPlan {
  return {
    state: { phase: "stopped", reason: "host_rebooted", message: "The host was rebooted", atWallMs: facts.wallMs },
    effect: "none",
    reason: "host_rebooted",
  };
}

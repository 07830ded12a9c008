/** What others see of a state: stored, shown, described. Pure. */
import { assertNever } from "@fluxvm/core";
import type { VmProcessRecord } from "@fluxvm/vmm";
import type { StoredVmState, VmPhase, VmState } from "./vm-state.ts";

/** Pausing is shown as running and resuming as paused until done; everything else as it is. */
export function toVisiblePhase(state: VmState): Exclude<VmPhase, "pausing" | "resuming"> {
  switch (state.phase) {
    case "pausing":
      return "running";
    case "resuming":
      return "paused";
    default:
      return state.phase;
  }
}

export function toStoredState(state: VmState): StoredVmState {
  switch (state.phase) {
    case "pausing":
      return { phase: "running", process: state.process };
    case "resuming":
      return { phase: "paused", process: state.process };
    case "gone":
      return { phase: "deleting", reason: state.reason };
    case "creating":
    case "starting":
    case "running":
    case "paused":
    case "stopping":
    case "stopped":
    case "failed":
    case "deleting":
      return state;
    default:
      return assertNever(state);
  }
}

/** The recorded machine of a state that has one. */
export function getProcessRecord(state: VmState): VmProcessRecord | undefined {
  return "process" in state ? state.process : undefined;
}

/** The reason and sentence a view carries. */
export function describeState(state: VmState): { readonly reason?: string | undefined; readonly message?: string | undefined } {
  return state.phase === "stopped" || state.phase === "failed" ? { reason: state.reason, message: state.message } : {};
}

/**
 * Which step of the simulated host goes wrong, and how. Every call through a simulated port is a step with a name,
 * such as `workspaces.ensure`; a plan names one by its name and number, or by its number among all.
 *
 *   fail          the call throws and has done nothing
 *   fail_after    the call throws and has done its work
 *   hang          nothing is done; the call settles when its signal fires (a commit is done, after 20 s)
 *   slow          the work is done two seconds later, also when the signal fires meanwhile
 *   crash_before  the daemon dies before the call takes effect
 *   crash_after   the daemon dies right after it took effect
 */
import { PlatformError } from "@fluxvm/core";

export type FaultKind = "slow" | "fail" | "fail_after" | "hang" | "crash_before" | "crash_after";

export interface Fault {
  readonly kind: FaultKind;
  /** A step's name, or `*` for any. */
  readonly step: string;
  /** The how-manieth such step, from 1. `every`: all of them. */
  readonly occurrence: number | "every";
}

export class FaultPlan {
  readonly #faults: readonly Fault[];
  readonly #counts = new Map<string, number>();
  /** Every step taken, in order. */
  readonly steps: string[] = [];

  constructor(faults: readonly Fault[] = []) {
    this.#faults = faults;
  }

  /** What befalls the step that is about to be taken. */
  next(step: string): FaultKind | undefined {
    this.steps.push(step);
    const own = this.#count(step);
    const all = this.#count("*");
    const hit = this.#faults.find((f) => {
      if (f.step !== step && f.step !== "*") return false;
      return f.occurrence === "every" || f.occurrence === (f.step === "*" ? all : own);
    });
    return hit?.kind;
  }

  #count(name: string): number {
    const count = (this.#counts.get(name) ?? 0) + 1;
    this.#counts.set(name, count);
    return count;
  }
}

export function makeFaultError(step: string): PlatformError {
  return new PlatformError("HOST_TOOL_FAILED", `Simulated failure of ${step}`);
}

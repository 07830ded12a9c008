/**
 * How often a guest's own reset may start its machine again, so that one that resets for ever does not eat its host.
 *
 *   [0 spent] --a life too short--> [1] ... --> [MAX_RESETS] --one more--> loop
 *       ^---- a life in which the agent answered or SETTLED_MS went by, or a stop ----'
 *
 * In memory only: a daemon that starts counts anew. Called by the VM's driver alone.
 */

/** Short lives in a row that are followed by another. */
export const MAX_RESETS = 5;
/** A guest that ran this long has come up, whether or not it has an agent. */
export const SETTLED_MS = 60_000;

export class ResetBudget {
  #spent = 0;
  /** When this life's machine began to run. */
  #sinceBootMs: number | undefined;

  /** The machine runs, or was found running. */
  begin(bootMs: number): void {
    this.#sinceBootMs = bootMs;
  }

  /** The guest's agent answered, or somebody stopped the VM: what was before counts no more. */
  clear(): void {
    this.#spent = 0;
  }

  /** Counts the end of this life by a reset. False when the VM must not start again. */
  spend(bootMs: number): boolean {
    const ranMs = this.#sinceBootMs === undefined ? 0 : bootMs - this.#sinceBootMs;
    this.#sinceBootMs = undefined;
    if (ranMs >= SETTLED_MS) this.#spent = 0;
    if (this.#spent >= MAX_RESETS) return false;
    this.#spent += 1;
    return true;
  }
}

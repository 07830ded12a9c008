/** What a backend brings to the conformance suite: itself on a host, guests that do as told, and a look at what is left. */
import type { VmBackend } from "../backend.ts";
import type { LaunchPlan } from "../launch-plan.ts";

/** What a guest does. `native/test-guest` does all of these. */
export type GuestScenario =
  /** Prints `ready`, then waits; powers off when asked to. */
  | { readonly kind: "idle" }
  /** Prints `ready`, then waits and ignores requests to power off. */
  | { readonly kind: "stubborn" }
  /** Prints `ready`, then uses its processor without pause. */
  | { readonly kind: "busy" }
  /** Prints `count 1`, `count 2`, … one each `everyMs`. */
  | { readonly kind: "count"; readonly everyMs: number }
  /** Waits `afterMs`, prints `bye`, then ends in that way. */
  | { readonly kind: "end"; readonly how: "poweroff" | "reset" | "crash" | "panic"; readonly afterMs: number }
  /** Prints that many KiB of numbered lines and then `done`. */
  | { readonly kind: "flood"; readonly kib: number };

export interface BrokenPlan {
  readonly what: string;
  readonly plan: LaunchPlan;
  /** Code of the error that `launch` must reject with. */
  readonly code: string;
}

export interface ConformanceWorld {
  readonly backend: VmBackend;
  /** A plan with an id and a directory of its own, of this world's instance unless `changes` say otherwise. */
  plan(scenario: GuestScenario, changes?: Partial<LaunchPlan>): Promise<LaunchPlan>;
  /** Plans that cannot be launched, each in another way. */
  brokenPlans(): Promise<readonly BrokenPlan[]>;
  /** What the console holds now, the newest file only. */
  readConsole(plan: LaunchPlan): Promise<string>;
  /** All bytes of the console's files on disk. */
  consoleBytes(plan: LaunchPlan): Promise<number>;
  /** Whether a process of the record is there. */
  isAlive(pid: number): boolean;
  /** Ends a process from outside, behind the backend's back. */
  killFromOutside(pid: number): void;
  /** Things of this VM the host still has: processes, sockets, cgroups, mounts. Not its directory, disks and console. */
  leftovers(plan: LaunchPlan): Promise<readonly string[]>;
  /** The daemon dies: `backend` lets go of everything and is not used any more. */
  disconnect(): Promise<void>;
  /** A backend as the next daemon has it. Calls `disconnect` first if need be. */
  reopen(): Promise<VmBackend>;
  /** Ends everything this world started. */
  close(): Promise<void>;
}

export interface ConformanceCase {
  readonly name: string;
  run(world: ConformanceWorld): Promise<void>;
}

/** Longest wait for any state, far above what a busy host needs. */
export const PATIENCE_MS = 30_000;

export function call(): { readonly signal: AbortSignal } {
  return { signal: AbortSignal.timeout(PATIENCE_MS) };
}

/** QEMU's run states (QEMU qapi/run-state.json) in the words of the boundary. Pure. */
import type { VmExit } from "@fluxvm/vmm";
import { asObject } from "./api.ts";

export interface QemuEvent {
  readonly name: string;
  readonly data: Readonly<Record<string, unknown>>;
}

export type MachineStatus =
  | { readonly kind: "prelaunch" | "paused" }
  /** `isHeld`: QEMU holds the guest because the host failed a write to its disk; nobody asked for a pause. */
  | { readonly kind: "running"; readonly isHeld: boolean }
  /** `exit` as far as the state alone tells: a reset looks like a power-off. */
  | { readonly kind: "ended"; readonly exit: VmExit };

/** The answer of `query-status`; `undefined` for anything that is not one. */
export function parseStatus(answer: unknown): MachineStatus | undefined {
  switch (asObject(answer)?.["status"]) {
    case "prelaunch":
    case "preconfig":
    case "inmigrate":
      return { kind: "prelaunch" };
    case "running":
    case "suspended":
      return { kind: "running", isHeld: false };
    case "io-error":
      return { kind: "running", isHeld: true };
    case "paused":
    case "watchdog":
    case "debug":
    case "save-vm":
    case "restore-vm":
    case "finish-migrate":
    case "postmigrate":
    case "colo":
      return { kind: "paused" };
    case "shutdown":
      return { kind: "ended", exit: { reason: "guest_shutdown", message: "The guest powered off or reset" } };
    case "guest-panicked":
      return { kind: "ended", exit: { reason: "guest_panic", message: "The guest's kernel panicked" } };
    case "internal-error":
      return { kind: "ended", exit: { reason: "crashed", message: "The virtual processor failed" } };
    default:
      return undefined;
  }
}

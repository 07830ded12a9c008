/** From what QEMU and the kernel say about an end to a `VmExit`. Pure. */
import type { ProcessExit } from "@fluxvm/host";
import type { VmExit } from "@fluxvm/vmm";
import type { QemuEvent } from "./qemu-status.ts";

/** What an event tells about why the guest ended; `undefined` when it does not end it, or our own `quit` did. */
export function guestEndOf(event: QemuEvent): VmExit | undefined {
  if (event.name === "GUEST_PANICKED") return { reason: "guest_panic", message: "The guest's kernel panicked" };
  if (event.name !== "SHUTDOWN") return undefined;
  switch (event.data["reason"]) {
    case "guest-shutdown":
      return { reason: "guest_shutdown", message: "The guest powered off" };
    case "guest-reset":
      return { reason: "guest_reset", message: "The guest reset or its processor failed" };
    case "guest-panic":
      return { reason: "guest_panic", message: "The guest's kernel panicked" };
    default:
      return undefined; // host-qmp-quit, host-signal: the process itself says how it ended
  }
}

const BY_HAND = new Set(["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"]);

/** `guestEnd`: what was known before the process went; it wins, since ending the process is only what follows. */
export function computeExit(process: ProcessExit, guestEnd: VmExit | undefined, killed: boolean): VmExit {
  if (guestEnd !== undefined) return guestEnd;
  const { code, signal } = process;
  const base = { ...(code === undefined ? {} : { code }), ...(signal === undefined ? {} : { signal }) };
  if (killed) return { reason: "killed", ...base };
  if (process.unknown === true) return { reason: "unknown", message: "QEMU ended while nobody watched" };
  if (signal !== undefined && BY_HAND.has(signal)) return { reason: "killed", ...base, message: `QEMU was ended by ${signal}` };
  if (signal === "SIGSYS") return { reason: "crashed", ...base, message: "QEMU made a system call that its sandbox denies" };
  if (signal !== undefined) return { reason: "crashed", ...base, message: `QEMU crashed with ${signal}` };
  if (code === 0) return { reason: "killed", ...base, message: "QEMU was told to quit" };
  return { reason: "crashed", ...base, message: `QEMU ended with exit code ${code ?? "unknown"}` };
}

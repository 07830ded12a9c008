/**
 * Whether KVM really runs guests. Opening the device and creating a VM proves nothing: there are software KVMs that
 * do both and emulate instructions one by one, on which an ordinary kernel spins for ever. So a guest of ours must
 * reach 64-bit mode with paging under QEMU and finish a loop of a hundred million iterations in time.
 *
 *     start ──(START_MS)──> "K" on the serial port ──(LOOP_MS)──> "D" ──> exit code 33
 *
 * Real hardware needs some tens of milliseconds for the loop. QEMU is killed at either deadline.
 */
import { existsSync } from "node:fs";
import { isPlatformError, PlatformError } from "@fluxvm/core";
import { systemClock } from "../clock/system-clock.ts";
import { spawnTool } from "../process/run-tool.ts";
import type { ProbeResult } from "./host-report.ts";
import { absent, found, runNativeProbe, type ProbeContext } from "./probe-context.ts";

const START_MS = 5000;
const LOOP_MS = 2000;
/** The guest writes 16 to QEMU's isa-debug-exit, which exits with twice that plus one. */
const EXIT_DONE = 33;
const ADVICE_USE_TCG = "VMs run with software emulation (accel: auto chooses it). For hardware speed use a host with real KVM.";

export interface GuestRun {
  readonly outcome: "done" | "no-start" | "too-slow" | "died";
  readonly loopMs?: number;
  /** QEMU's last lines. */
  readonly said: string;
}

export interface GuestRunOptions {
  readonly accelerator: "kvm" | "tcg";
  readonly cpu: string;
  readonly probeGuestPath: string;
  readonly signal: AbortSignal;
  readonly startMs?: number;
  readonly loopMs?: number;
}

/** Runs the probe guest once. @throws PlatformError `HOST_TOOL_MISSING` without QEMU */
export async function runProbeGuest(options: GuestRunOptions): Promise<GuestRun> {
  const deadline = new AbortController();
  const late = new PlatformError("DEADLINE_EXCEEDED", "The probe guest is late");
  let startedAtMs: number | undefined;
  let doneAtMs: number | undefined;
  let cancel = systemClock.schedule(options.startMs ?? START_MS, () => deadline.abort(late));
  const onLine = (line: string): void => {
    if (line === "K" && startedAtMs === undefined) {
      startedAtMs = systemClock.bootMs();
      cancel();
      cancel = systemClock.schedule(options.loopMs ?? LOOP_MS, () => deadline.abort(late));
    }
    if (line === "D") doneAtMs ??= systemClock.bootMs();
  };
  const tool = spawnTool({
    // A QEMU that aborts must leave no core file.
    command: "sh",
    args: ["-c", 'ulimit -c 0; command -v "$0" >/dev/null || exit 127; exec "$0" "$@"', "qemu-system-x86_64", ...qemuArgs(options)],
    timeoutMs: 60_000,
    okCodes: [EXIT_DONE],
    onLine,
    signal: AbortSignal.any([options.signal, deadline.signal]),
  });
  tool.stdin.end();
  try {
    const { stderr } = await tool.done;
    return startedAtMs !== undefined && doneAtMs !== undefined
      ? { outcome: "done", loopMs: Math.round(doneAtMs - startedAtMs), said: stderr }
      : { outcome: "died", said: stderr };
  } catch (error) {
    options.signal.throwIfAborted();
    if (error === late) return { outcome: startedAtMs === undefined ? "no-start" : "too-slow", said: "" };
    if (isPlatformError(error) && error.details["exitCode"] === 127)
      throw new PlatformError("HOST_TOOL_MISSING", "qemu-system-x86_64 is not installed");
    return { outcome: "died", said: error instanceof Error ? error.message : String(error) };
  } finally {
    cancel();
  }
}

function qemuArgs({ accelerator, cpu, probeGuestPath }: GuestRunOptions): readonly string[] {
  const machine = ["-accel", accelerator, "-M", "microvm,rtc=on,pit=on,pic=on", "-cpu", cpu, "-m", "32", "-smp", "1"];
  const bare = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"];
  return [...machine, ...bare, "-device", "isa-debug-exit,iobase=0xf4,iosize=4", "-kernel", probeGuestPath];
}

export async function probeKvm(context: ProbeContext): Promise<ProbeResult> {
  const device = await runNativeProbe(context, "kvm-device");
  if (device.status === "missing") {
    const advice = `Load it with: modprobe kvm_intel or kvm_amd, and enable virtualisation in the firmware. Until then: ${ADVICE_USE_TCG}`;
    return absent("kvm", "missing", { detail: device.detail, advice });
  }
  if (device.status === "broken") {
    const advice = "Run the daemon as root or add its user to the group kvm.";
    return absent("kvm", "broken", { detail: device.detail, advice });
  }
  if (process.arch !== "x64") return found("kvm", `${device.detail}; not tried with a guest on this architecture`, { verified: false });
  if (!existsSync(context.probeGuestPath)) {
    return absent("kvm", "broken", { detail: "cannot be verified: the probe guest is not built", advice: "Run tools/setup." });
  }
  try {
    return await judge(context);
  } catch (error) {
    if (!isPlatformError(error, "HOST_TOOL_MISSING")) throw error;
    return absent("kvm", "broken", { detail: "cannot be verified without QEMU", advice: "apt-get install qemu-system-x86" });
  }
}

/** `-cpu host` first, as VMs use it; a plain model if QEMU does not take that. */
async function judge(context: ProbeContext): Promise<ProbeResult> {
  let last: GuestRun = { outcome: "died", said: "" };
  for (const cpu of ["host", "qemu64"]) {
    last = await runProbeGuest({ accelerator: "kvm", cpu, probeGuestPath: context.probeGuestPath, signal: context.signal });
    if (last.outcome === "done") {
      return found("kvm", `a guest ran 100 million iterations in 64-bit mode in ${last.loopMs} ms`, {
        cpu,
        loopMs: last.loopMs,
        verified: true,
      });
    }
    if (last.outcome !== "died") break;
  }
  return absent("kvm", "broken", { detail: describeFailure(last), advice: ADVICE_USE_TCG });
}

function describeFailure(run: GuestRun): string {
  switch (run.outcome) {
    case "too-slow":
      return `opens and creates VMs, and a guest reached 64-bit mode, yet it did not finish 100 million iterations in ${LOOP_MS} ms: this KVM emulates instructions`;
    case "no-start":
      return `opens and creates VMs, yet a guest did not reach 64-bit mode in ${START_MS} ms`;
    case "died":
    case "done":
      return `opens and creates VMs, yet QEMU failed on it: ${run.said}`;
  }
}

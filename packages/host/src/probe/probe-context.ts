/** What a probe gets, and how it tells what it found. */
import { isPlatformError, type CallOptions } from "@fluxvm/core";
import type { HostHelper } from "../helper/host-helper.ts";
import { runTool } from "../process/run-tool.ts";
import type { ProbeName, ProbeResult, ProbeStatus } from "./host-report.ts";

const NATIVE_TIMEOUT_MS = 10_000;

export interface ProbeContext extends CallOptions {
  readonly helper: Pick<HostHelper, "killCgroup" | "launchProcess">;
  /** `fluxvm-host-helper`. */
  readonly helperBinaryPath: string;
  /** `fluxvm-probe-guest`. */
  readonly probeGuestPath: string;
  /** Where images and disks will be. */
  readonly stateDir: string;
  readonly isRoot: boolean;
}

export type Probe = (context: ProbeContext) => Promise<ProbeResult>;

export interface Advice {
  readonly missing: string;
  readonly broken?: string;
}

export function found(name: ProbeName, detail: string, data?: Readonly<Record<string, unknown>>): ProbeResult {
  return { name, status: "works", detail, advice: "", ...(data === undefined ? {} : { data }) };
}

export function absent(
  name: ProbeName,
  status: "missing" | "broken",
  text: { readonly detail: string; readonly advice: string },
): ProbeResult {
  return { name, status, detail: text.detail, advice: text.advice };
}

/** Runs `fluxvm-host-helper probe NAME`, whose whole world ends with it. */
export async function runNativeProbe(
  context: ProbeContext,
  name: string,
  args: readonly string[] = [],
): Promise<{ readonly status: ProbeStatus; readonly detail: string; readonly data?: Record<string, unknown> }> {
  try {
    const { stdout } = await runTool({
      command: context.helperBinaryPath,
      args: ["probe", name, ...args],
      timeoutMs: NATIVE_TIMEOUT_MS,
      signal: context.signal,
    });
    return JSON.parse(stdout) as { status: ProbeStatus; detail: string; data?: Record<string, unknown> }; // our own binary prints it
  } catch (error) {
    context.signal.throwIfAborted();
    if (isPlatformError(error, "HOST_TOOL_MISSING")) throw error;
    return { status: "broken", detail: `The probe itself failed: ${error instanceof Error ? error.message : String(error)}` };
  }
}

/** A probe that the helper's binary carries out whole. */
export function nativeProbe(name: ProbeName, advice: Advice, args: (context: ProbeContext) => readonly string[] = () => []): Probe {
  return async (context) => {
    const verdict = await runNativeProbe(context, name, args(context));
    if (verdict.status === "works") return found(name, verdict.detail, verdict.data);
    const text = verdict.status === "missing" ? advice.missing : (advice.broken ?? advice.missing);
    return absent(name, verdict.status, { detail: verdict.detail, advice: text });
  };
}

/** `doctor`: what this host can do, as a table or as JSON, without a daemon. Exits 0 when VMs can run here, 1 when not. */
import { join } from "node:path";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import type { Config, HostReport } from "@fluxvm/contracts";
import { PlatformError } from "@fluxvm/core";
import { probeHost, startHostHelper, systemClock } from "@fluxvm/host";
import type { Logger } from "@fluxvm/telemetry";
import { toHostReportView } from "./adapters/host-service.ts";
import { findBinaries } from "./binaries.ts";

export const DOCTOR_SWITCHES = ["--json", "--refresh"] as const;
/** Without these no VM can run here. */
const REQUIRED = ["qemu"] as const;

export interface DoctorOptions {
  readonly config: Config;
  readonly logger: Logger;
  readonly isJson: boolean;
  readonly refresh: boolean;
  readonly write: (text: string) => void;
}

/** @returns the exit code */
export async function runDoctor({ config, logger, isJson, refresh, write }: DoctorOptions): Promise<number> {
  const binaries = findBinaries(config.tools);
  if (binaries.probeGuest === undefined)
    throw new PlatformError("HOST_TOOL_MISSING", "Cannot find the program fluxvm-probe-guest: it is not built; run `npm run setup`");
  const helper = await startHostHelper({ binaryPath: binaries.hostHelper, logger, clock: systemClock });
  const isInstalled = existsSync(config.state_dir);
  const scratch = isInstalled ? undefined : mkdtempSync(join(tmpdir(), "fluxvm-doctor-"));
  try {
    const report = await probeHost({
      helper,
      helperBinaryPath: binaries.hostHelper,
      probeGuestPath: binaries.probeGuest,
      stateDir: scratch ?? config.state_dir,
      ...(isInstalled ? { cachePath: join(config.state_dir, "host-report.json") } : {}),
      refresh,
      signal: AbortSignal.timeout(300_000),
    });
    const view = toHostReportView(report);
    write(isJson ? `${JSON.stringify(view, undefined, 2)}\n` : formatReport(view));
    return REQUIRED.every((name) => view.capabilities.some((c) => c.name === name && c.status === "works")) ? 0 : 1;
  } finally {
    await helper.close();
    if (scratch !== undefined) rmSync(scratch, { recursive: true, force: true });
  }
}

/** Aligned columns; advice on a line of its own below what it is about. */
export function formatReport(report: HostReport): string {
  const nameWidth = Math.max(...report.capabilities.map((c) => c.name.length), 10);
  const statusWidth = Math.max(...report.capabilities.map((c) => c.status.length), 6);
  const indent = " ".repeat(nameWidth + statusWidth + 4);
  const rows = report.capabilities.flatMap(({ name, status, detail, advice }) => [
    `${name.padEnd(nameWidth)}  ${status.padEnd(statusWidth)}  ${oneLine(detail)}`,
    ...(advice === undefined ? [] : [`${indent}→ ${oneLine(advice)}`]),
  ]);
  return [
    `${"CAPABILITY".padEnd(nameWidth)}  ${"STATUS".padEnd(statusWidth)}  DETAIL`,
    ...rows,
    "",
    `kernel ${report.kernel}, probed ${report.probed_at}`,
    "",
  ].join("\n");
}

function oneLine(text: string): string {
  return text.replaceAll(/\s*\n\s*/g, " | ").trim();
}

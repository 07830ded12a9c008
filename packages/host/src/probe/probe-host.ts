/**
 * The capability probe: every probe does what it asks about and leaves nothing behind. The report is kept in a file and
 * used again within the same boot as long as the programs it looked at are the same; `refresh` probes again.
 */
import { existsSync, readFileSync, statSync } from "node:fs";
import { release } from "node:os";
import type { CallOptions } from "@fluxvm/core";
import { readBootId, systemClock } from "../clock/system-clock.ts";
import { writeFileDurable } from "../files/durable.ts";
import type { HostHelper } from "../helper/host-helper.ts";
import { probeCgroup, probeNftables } from "./host-probes.ts";
import { PROBE_NAMES, type HostReport, type ProbeName, type ProbeResult } from "./host-report.ts";
import { KERNEL_PROBES } from "./kernel-probes.ts";
import { probeKvm } from "./kvm-probe.ts";
import type { Probe, ProbeContext } from "./probe-context.ts";
import { probeMkfs, probeQemu, probeSkopeo, probeVirtiofsd } from "./tool-probes.ts";

/** Raised whenever a probe changes what it means. */
const CACHE_VERSION = 1;
const AT_ONCE = 4;
const PROBES: readonly Probe[] = [...KERNEL_PROBES, probeCgroup, probeNftables, probeQemu, probeVirtiofsd, probeSkopeo, probeMkfs];
/** A tool that is installed, removed or upgraded makes a kept report stale. */
const LOOKED_AT = [
  "/usr/bin/qemu-system-x86_64",
  "/usr/bin/qemu-system-aarch64",
  "/usr/lib/qemu/virtiofsd",
  "/usr/libexec/virtiofsd",
  "/usr/bin/skopeo",
  "/usr/sbin/nft",
  "/sbin/mke2fs",
];

export interface ProbeHostOptions extends CallOptions {
  readonly helper: Pick<HostHelper, "killCgroup" | "launchProcess">;
  /** `fluxvm-host-helper`. */
  readonly helperBinaryPath: string;
  /** `fluxvm-probe-guest`. */
  readonly probeGuestPath: string;
  /** Must exist: reflink, mkfs and skopeo are tried there. */
  readonly stateDir: string;
  /** The file that keeps the report; absent: nothing is kept. */
  readonly cachePath?: string;
  readonly refresh?: boolean;
}

/** @throws PlatformError `HOST_TOOL_MISSING` when the helper's binary is not there. */
export async function probeHost(options: ProbeHostOptions): Promise<HostReport> {
  const fingerprint = computeFingerprint(options);
  if (options.refresh !== true) {
    const kept = readCache(options.cachePath, fingerprint);
    if (kept !== undefined) return kept;
  }
  const context: ProbeContext = { ...options, isRoot: process.getuid?.() === 0 };
  // Alone: its deadlines are about speed.
  const kvm = await probeKvm(context);
  const results = [kvm, ...(await runProbes(context))];
  const order = (name: ProbeName): number => PROBE_NAMES.indexOf(name);
  const report: HostReport = {
    bootId: readBootId(),
    probedAtMs: systemClock.wallMs(),
    kernel: release(),
    arch: process.arch,
    isRoot: context.isRoot,
    results: results.toSorted((a, b) => order(a.name) - order(b.name)),
  };
  if (options.cachePath !== undefined) await writeFileDurable(options.cachePath, JSON.stringify({ fingerprint, report }));
  return report;
}

async function runProbes(context: ProbeContext): Promise<ProbeResult[]> {
  const results: ProbeResult[] = [];
  const queue = PROBES.values();
  const worker = async (): Promise<void> => {
    for (const probe of queue) results.push(await probe(context));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return results;
}

function computeFingerprint(options: ProbeHostOptions): string {
  const files = [options.helperBinaryPath, options.probeGuestPath, ...LOOKED_AT];
  const stamps = files.map((path) => statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0);
  return JSON.stringify([CACHE_VERSION, readBootId(), process.getuid?.(), options.stateDir, ...stamps]);
}

function readCache(path: string | undefined, fingerprint: string): HostReport | undefined {
  if (path === undefined || !existsSync(path)) return undefined;
  try {
    const kept = JSON.parse(readFileSync(path, "utf8")) as { fingerprint?: unknown; report?: HostReport }; // written below; checked by the fingerprint
    return kept.fingerprint === fingerprint && Array.isArray(kept.report?.results) ? kept.report : undefined;
  } catch {
    return undefined;
  }
}

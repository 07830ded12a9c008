/**
 * The tiers that touch the host: integration and end to end. Few files at a time, each with a temporary folder of its
 * own; after each file whatever it left behind is a failure of that file, and its processes are ended.
 */
import { randomBytes } from "node:crypto";
import { chmodSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { findTestFiles } from "./discover.ts";
import { findMounts, findProcesses, findThings, RUN_VARIABLE, type HostSnapshot, type RunMark } from "./leftovers.ts";
import { mapBounded } from "./pool.ts";
import { printResult } from "./progress.ts";
import { runTestFile } from "./run-file.ts";
import { makeRecord, type UnitResult } from "./tally.ts";

/** How long what a file started may take to end after the file. */
const GRACE_MS = 5000;
const TIERS = {
  int: { width: 2, timeoutMs: 10 * 60_000 },
  e2e: { width: 1, timeoutMs: 15 * 60_000 },
} as const;

export interface HeavyOptions {
  readonly root: string;
  readonly tier: keyof typeof TIERS;
  readonly files: readonly string[];
  readonly grep: string | undefined;
}

export async function runHeavyTests(options: HeavyOptions): Promise<UnitResult[]> {
  const { root, tier, files, grep } = options;
  const { width, timeoutMs } = TIERS[tier];
  return await mapBounded(findTestFiles(root, tier, files), width, async (path) => {
    const mark = makeMark();
    try {
      const env = { ...process.env, TMPDIR: mark.folder, [RUN_VARIABLE]: mark.id };
      const result = await runTestFile({ root, path, timeoutMs, env, grep });
      const checked = { ...result, records: [...result.records, ...(await checkProcesses(mark, path))] };
      printResult(checked);
      return checked;
    } finally {
      rmSync(mark.folder, { recursive: true, force: true });
    }
  });
}

/** Short, since Unix sockets lie below it, and open to the VMs' own user ids. */
function makeMark(): RunMark {
  const folder = mkdtempSync(join(tmpdir(), "fvt-"));
  chmodSync(folder, 0o755);
  mkdirSync(folder, { recursive: true });
  return { id: `run-${randomBytes(8).toString("hex")}`, folder };
}

async function checkProcesses(mark: RunMark, path: string): Promise<ReturnType<typeof makeRecord>[]> {
  const deadline = performance.now() + GRACE_MS;
  let left = findProcesses(mark);
  while (left.length > 0 && performance.now() < deadline) {
    await sleep(100);
    left = findProcesses(mark);
  }
  const mounts = findMounts(mark);
  for (const { pid } of left) endProcess(pid);
  const found = [...left.map((p) => `process ${p.pid}: ${p.command.slice(0, 300)}`), ...mounts];
  return found.length === 0 ? [] : [makeRecord(`${path} leaves nothing behind`, "failed", found.join("\n"))];
}

function endProcess(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // it has ended in between
  }
}

/** Cgroups, namespaces, tables and links that came up during the whole run: one result of its own. */
export async function checkHost(before: HostSnapshot): Promise<UnitResult> {
  const deadline = performance.now() + GRACE_MS;
  let left = findThings(before);
  while (left.length > 0 && performance.now() < deadline) {
    await sleep(100);
    left = findThings(before);
  }
  const record = makeRecord("nothing is left on the host", left.length === 0 ? "passed" : "failed", left.join("\n"));
  return { name: "left behind", durationMs: 0, records: [record], output: "" };
}

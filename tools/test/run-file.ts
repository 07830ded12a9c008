/**
 * Runs one test file in a process of its own and reads back what its tests did.
 *
 * Whatever happens to the file shows as a failed test: a crash, a time-out, an exit code, a file without any test.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestRecord } from "./reporter.ts";
import { run, type RunOutcome } from "./spawn.ts";
import { makeRecord, type UnitResult } from "./tally.ts";

export interface FileOptions {
  readonly root: string;
  /** Relative to `root`. */
  readonly path: string;
  readonly timeoutMs: number;
  readonly env: NodeJS.ProcessEnv;
  /** Only tests whose name matches. */
  readonly grep?: string | undefined;
}

/** What `bin/fluxctl` runs the product with (decision record 0011). */
const NODE_FLAGS = ["--no-function-context-cells"];
const REPORTER = join(import.meta.dirname, "reporter.ts");

export async function runTestFile(options: FileOptions): Promise<UnitResult> {
  const folder = mkdtempSync(join(tmpdir(), "test-report-"));
  try {
    const report = join(folder, "report.jsonl");
    const args = [`--test-reporter=${REPORTER}`, `--test-reporter-destination=${report}`];
    if (options.grep !== undefined) args.push(`--test-name-pattern=${options.grep}`);
    const { root: cwd, timeoutMs } = options;
    const { NODE_TEST_CONTEXT: _, ...env } = options.env; // set inside node:test, it would silence the reporter
    const outcome = await run({ command: process.execPath, args: [...NODE_FLAGS, ...args, options.path], cwd, env, timeoutMs });
    const records = readRecords(report);
    const extra = explainEnd(options, outcome, records);
    return { name: options.path, durationMs: outcome.durationMs, records: [...records, ...extra], output: outcome.output };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Lines of the report; a last line cut off by a crash is dropped, the crash itself is counted. */
function readRecords(report: string): TestRecord[] {
  let text: string;
  try {
    text = readFileSync(report, "utf8");
  } catch {
    return [];
  }
  const lines = text.split("\n").slice(0, -1);
  return lines.map((line) => JSON.parse(line) as TestRecord); // our reporter wrote it
}

function explainEnd(options: FileOptions, outcome: RunOutcome, records: readonly TestRecord[]): TestRecord[] {
  const fail = (detail: string): TestRecord[] => [makeRecord(options.path, "failed", detail, outcome.durationMs)];
  if (outcome.timedOut) return fail(`the file did not end in ${options.timeoutMs / 1000} s and was killed`);
  if (outcome.signal !== undefined) return fail(`the file's process was ended by ${outcome.signal}`);
  const failed = records.some((r) => r.outcome === "failed");
  if (outcome.code !== 0 && !failed) return fail(`the file's process ended with code ${outcome.code}`);
  if (records.length === 0 && options.grep === undefined) return fail("the file holds no test");
  return [];
}

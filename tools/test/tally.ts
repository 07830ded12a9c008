/** What the runners found, added up. */
import type { TestRecord } from "./reporter.ts";

/** The end of one piece of work: a test file, a check step, one crate's `cargo test`. */
export interface UnitResult {
  readonly name: string;
  readonly durationMs: number;
  readonly records: readonly TestRecord[];
  /** What it printed, shown when something failed. */
  readonly output: string;
}

export interface Totals {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

export function countTotals(results: readonly UnitResult[]): Totals {
  const count = (outcome: TestRecord["outcome"]): number =>
    results.reduce((sum, r) => sum + r.records.filter((record) => record.outcome === outcome).length, 0);
  // a test left for later is no test: it fails the run
  return { passed: count("passed"), failed: count("failed") + count("todo"), skipped: count("skipped") };
}

export function formatTotals(totals: Totals): string {
  return `${totals.passed} passed, ${totals.failed} failed, ${totals.skipped} skipped`;
}

export function isFailed(result: UnitResult): boolean {
  return result.records.some((r) => r.outcome === "failed" || r.outcome === "todo");
}

/** A record for something that is no test of a runner: a step, a crash. */
export function makeRecord(name: string, outcome: "passed" | "failed" | "skipped", detail = "", durationMs = 0): TestRecord {
  return { name, outcome, detail, durationMs };
}

/** The failed tests of a result in full, then what the file printed. */
export function formatFailures(result: UnitResult): string {
  const failures = result.records.filter((r) => r.outcome === "failed" || r.outcome === "todo");
  const parts = failures.map(
    (r) => `  ✖ ${r.name}\n${indent(r.outcome === "todo" ? "marked as still to be written" : r.detail, "      ")}`,
  );
  const output = result.output.trim() === "" ? [] : [`  output of ${result.name}:\n${indent(result.output.trimEnd(), "      ")}`];
  return [...parts, ...output].join("\n");
}

function indent(text: string, by: string): string {
  return text
    .split("\n")
    .map((line) => by + line)
    .join("\n");
}

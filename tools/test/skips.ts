/**
 * Which tests may be skipped: `test/expected-skips.json`, a list of `{ "test": <regular expression>, "reason": … }`. The
 * expression is matched against `<file>: <names of suites and test, joined by " > ">`, and `because`, where an entry has
 * one, against what the test said when it skipped. Any other skip fails the run, lest a test that silently stopped
 * running counts as passed.
 */
import { readFileSync } from "node:fs";
import type { UnitResult } from "./tally.ts";

export interface ExpectedSkip {
  readonly test: string;
  /** What the host lacks, in the test's own words: a skip for another reason is not expected. */
  readonly because?: string;
  readonly reason: string;
}

export function readExpectedSkips(file: string): ExpectedSkip[] {
  const value: unknown = JSON.parse(readFileSync(file, "utf8"));
  if (!Array.isArray(value)) throw new Error(`${file} must hold a list`);
  return value.map((entry: unknown, i) => {
    const isEntry = typeof entry === "object" && entry !== null && "test" in entry && "reason" in entry;
    if (!isEntry || typeof entry.test !== "string" || typeof entry.reason !== "string" || entry.reason.trim().length < 10) {
      throw new Error(`${file}: entry ${i} must have a "test" pattern and a "reason" of a sentence`);
    }
    const because = "because" in entry && typeof entry.because === "string" ? { because: entry.because } : {};
    return { test: entry.test, ...because, reason: entry.reason };
  });
}

/** The skips that no entry expects, as `<file>: <test> (<why it was skipped>)`. */
export function findUnexpectedSkips(results: readonly UnitResult[], expected: readonly ExpectedSkip[]): string[] {
  const patterns = expected.map((e) => ({ test: new RegExp(e.test), because: new RegExp(e.because ?? "") }));
  const skips = results.flatMap((r) => r.records.filter((t) => t.outcome === "skipped").map((t) => ({ id: `${r.name}: ${t.name}`, t })));
  return skips
    .filter(({ id, t }) => !patterns.some((p) => p.test.test(id) && p.because.test(t.detail)))
    .map(({ id, t }) => `${id} (${t.detail || "no reason given"})`);
}

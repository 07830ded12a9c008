/**
 * Which tests may be skipped: `test/expected-skips.json`, a list of `{ "test": <regular expression>, "reason": … }`. The
 * expression is matched against `<file>: <names of suites and test, joined by " > ">`. Any other skip fails the run,
 * lest a test that silently stopped running counts as passed.
 */
import { readFileSync } from "node:fs";
import type { UnitResult } from "./tally.ts";

export interface ExpectedSkip {
  readonly test: string;
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
    return { test: entry.test, reason: entry.reason };
  });
}

/** The skips that no entry expects, as `<file>: <test> (<why it was skipped>)`. */
export function findUnexpectedSkips(results: readonly UnitResult[], expected: readonly ExpectedSkip[]): string[] {
  const patterns = expected.map((e) => new RegExp(e.test));
  const skips = results.flatMap((r) => r.records.filter((t) => t.outcome === "skipped").map((t) => ({ id: `${r.name}: ${t.name}`, t })));
  return skips.filter(({ id }) => !patterns.some((p) => p.test(id))).map(({ id, t }) => `${id} (${t.detail || "no reason given"})`);
}

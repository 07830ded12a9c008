/** What a run prints while it goes: one line for each step or file, failures in full at once. */
import { countTotals, formatFailures, isFailed, type UnitResult } from "./tally.ts";

export function printResult(result: UnitResult): void {
  const { passed, failed, skipped } = countTotals([result]);
  const counts = [`${passed} passed`, ...(failed > 0 ? [`${failed} FAILED`] : []), ...(skipped > 0 ? [`${skipped} skipped`] : [])];
  console.log(`${isFailed(result) ? "✖" : "✔"} ${result.name} (${counts.join(", ")}, ${formatSeconds(result.durationMs)})`);
  if (isFailed(result)) console.log(formatFailures(result));
}

/** One line for many files that all went well; those that did not, each by itself. */
export function printSummary(name: string, results: readonly UnitResult[], durationMs: number): void {
  for (const result of results.filter(isFailed)) printResult(result);
  const { passed, failed, skipped } = countTotals(results);
  const mark = failed > 0 ? "✖" : "✔";
  console.log(
    `${mark} ${name}: ${results.length} files, ${passed} passed, ${failed} failed, ${skipped} skipped (${formatSeconds(durationMs)})`,
  );
}

export function formatSeconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

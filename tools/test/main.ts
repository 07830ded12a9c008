/** `npm test`: every check and every test, cheap ones first; the last line is the sum of all runners. */
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { runStep, STEPS } from "../check/steps.ts";
import { findCrates, runCargoTests } from "./cargo.ts";
import { checkHost, runHeavyTests } from "./heavy.ts";
import { takeSnapshot } from "./leftovers.ts";
import { parseOptions, USAGE, type Part, type TestOptions } from "./options.ts";
import { formatSeconds, printResult } from "./progress.ts";
import { findUnexpectedSkips, readExpectedSkips } from "./skips.ts";
import { killRunning } from "./spawn.ts";
import { countTotals, formatTotals, isFailed, makeRecord, type UnitResult } from "./tally.ts";
import { runUnitTests } from "./unit.ts";

const root = resolve(import.meta.dirname, "../..");

async function runPart(part: Part, options: TestOptions): Promise<UnitResult[]> {
  const { grep, files } = options;
  switch (part) {
    case "check":
      return await runEach(STEPS, async (step) => await runStep(root, step));
    case "unit":
      return await runUnitTests({ root, files, grep });
    case "native":
      return await runEach(findCrates(root), async (crate) => await runCargoTests(root, crate, process.env));
    case "int":
    case "e2e":
      return await runHeavyTests({ root, tier: part, files, grep });
  }
}

async function runEach<T>(items: readonly T[], work: (item: T) => Promise<UnitResult>): Promise<UnitResult[]> {
  const results: UnitResult[] = [];
  for (const item of items) {
    const result = await work(item);
    printResult(result);
    results.push(result);
  }
  return results;
}

function checkSkips(results: readonly UnitResult[]): UnitResult {
  const file = join(root, "test/expected-skips.json");
  const unexpected = findUnexpectedSkips(results, existsSync(file) ? readExpectedSkips(file) : []);
  const detail = `skipped, but not expected by test/expected-skips.json:\n${unexpected.join("\n")}`;
  const records = [makeRecord("only expected skips", unexpected.length === 0 ? "passed" : "failed", detail)];
  return { name: "skips", durationMs: 0, records, output: "" };
}

async function main(): Promise<void> {
  const options = parseOptions(process.argv.slice(2));
  if (options.help) {
    console.log(USAGE);
    return;
  }
  const started = performance.now();
  const before = takeSnapshot();
  const results: UnitResult[] = [];
  for (const part of options.parts) {
    console.log(`\n== ${part} (${formatSeconds(performance.now() - started)})`);
    results.push(...(await runPart(part, options)));
  }
  console.log(`\n== end (${formatSeconds(performance.now() - started)})`);
  for (const result of [checkSkips(results), await checkHost(before)]) {
    printResult(result);
    results.push(result);
  }
  const failed = results.filter(isFailed);
  if (failed.length > 0) console.log(`\nfailed: ${failed.map((r) => r.name).join(", ")}`);
  const totals = countTotals(results);
  console.log(formatTotals(totals));
  process.exitCode = totals.failed > 0 ? 1 : 0;
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    killRunning();
    process.exit(signal === "SIGINT" ? 130 : 143);
  });
}
try {
  await main();
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 2;
}

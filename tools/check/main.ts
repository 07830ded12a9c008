/** `npm run check`: types, lint, format, house rules, generated files and unit tests, in well under a minute. */
import { resolve } from "node:path";
import { printResult } from "../test/progress.ts";
import { killRunning } from "../test/spawn.ts";
import { countTotals, formatTotals } from "../test/tally.ts";
import { runUnitTests } from "../test/unit.ts";
import { runStep, STEPS } from "./steps.ts";

process.once("SIGINT", () => {
  killRunning();
  process.exit(130);
});

const root = resolve(import.meta.dirname, "../..");
const results = [];
for (const step of STEPS) {
  const result = await runStep(root, step);
  printResult(result);
  results.push(result);
}
results.push(...(await runUnitTests({ root })));
const totals = countTotals(results);
console.log(formatTotals(totals));
process.exitCode = totals.failed > 0 ? 1 : 0;

/** `node tools/tidy/main.ts`: prints what breaks the house rules; exits 1 if anything does. */
import { resolve } from "node:path";
import { formatProblem, runTidy } from "./run.ts";

const problems = runTidy(resolve(import.meta.dirname, "../.."));
for (const problem of problems) console.log(formatProblem(problem));
if (problems.length > 0) {
  console.log(`${problems.length} problems`);
  process.exitCode = 1;
}

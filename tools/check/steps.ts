/** The quick checks that are one command each: types, lint, format, house rules, generated files, format of the Rust sources. */
import { join } from "node:path";
import { run } from "../test/spawn.ts";
import { makeRecord, type UnitResult } from "../test/tally.ts";

const TIMEOUT_MS = 5 * 60_000;

interface Step {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  /** How to put it right, when one command does. */
  readonly fix?: string;
  /** Arguments with which the command succeeds only where it is installed; elsewhere the step is skipped. */
  readonly probe?: readonly string[];
}

const NODE = process.execPath;
const BIN = "node_modules/.bin";

export const STEPS: readonly Step[] = [
  { name: "types", command: `${BIN}/tsc`, args: ["-p", "tsconfig.json"] },
  { name: "lint", command: `${BIN}/oxlint`, args: ["-f", "unix"] },
  { name: "format", command: `${BIN}/oxfmt`, args: ["--list-different", "."], fix: "npm run format" },
  { name: "tidy", command: NODE, args: ["tools/tidy/main.ts"] },
  { name: "generated", command: NODE, args: ["tools/codegen/main.ts", "--check"], fix: "npm run gen" },
  {
    name: "rust format",
    command: "sh",
    args: ["tools/setup/cargo.sh", "fmt", "--all", "--check", "--manifest-path", "native/Cargo.toml"],
    fix: "cargo fmt --all --manifest-path native/Cargo.toml",
    probe: ["tools/setup/cargo.sh", "fmt", "--version"],
  },
];

export async function runStep(root: string, step: Step, env: NodeJS.ProcessEnv = process.env): Promise<UnitResult> {
  const command = step.command.startsWith(BIN) ? join(root, step.command) : step.command;
  if (step.probe !== undefined) {
    const { code } = await run({ command, args: step.probe, cwd: root, env, timeoutMs: TIMEOUT_MS });
    if (code !== 0)
      return { name: step.name, durationMs: 0, records: [makeRecord(step.name, "skipped", `${step.name}: not installed`)], output: "" };
  }
  const outcome = await run({ command, args: step.args, cwd: root, env, timeoutMs: TIMEOUT_MS });
  const passed = outcome.code === 0;
  const advice = step.fix === undefined ? "" : `; \`${step.fix}\` puts it right`;
  const why = outcome.timedOut ? "took too long" : `ended with code ${outcome.code ?? outcome.signal}${advice}`;
  const record = makeRecord(step.name, passed ? "passed" : "failed", passed ? "" : why, outcome.durationMs);
  return { name: step.name, durationMs: outcome.durationMs, records: [record], output: passed ? "" : outcome.output };
}

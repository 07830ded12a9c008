/** Runs `cargo test` for each crate of native/ and reads the counts out of what it prints. */
import { existsSync, globSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { TestRecord } from "./reporter.ts";
import { run } from "./spawn.ts";
import { makeRecord, type UnitResult } from "./tally.ts";

const TIMEOUT_MS = 20 * 60_000;
/** Crates whose programs are static or have no standard library: build scripts survive that only with a target named. */
const TARGETED = new Set(["guest-agent", "test-guest", "probe-guest"]);
const TARGET = "x86_64-unknown-linux-gnu";

export function findCrates(root: string): string[] {
  return globSync("native/*/Cargo.toml", { cwd: root })
    .map((path) => basename(dirname(path)))
    .sort();
}

export async function runCargoTests(root: string, crate: string, env: NodeJS.ProcessEnv): Promise<UnitResult> {
  const cwd = join(root, "native", crate);
  const hasTests = existsSync(join(cwd, "src/lib.rs")) || existsSync(join(cwd, "src/main.rs"));
  if (!hasTests) return { name: `native/${crate}`, durationMs: 0, records: [], output: "" };
  const target = TARGETED.has(crate) ? ["--target", TARGET] : [];
  const args = [join(root, "tools/setup/cargo.sh"), "test", "--locked", ...target];
  const outcome = await run({ command: "sh", args, cwd, env, timeoutMs: TIMEOUT_MS });
  const records = parseCargoOutput(outcome.output);
  if (outcome.code !== 0 && !records.some((r) => r.outcome === "failed")) {
    const why = outcome.timedOut ? `did not end in ${TIMEOUT_MS / 60_000} minutes` : `ended with code ${outcome.code ?? outcome.signal}`;
    records.push(makeRecord("cargo test", "failed", why));
  }
  const failed = records.some((r) => r.outcome === "failed");
  return { name: `native/${crate}`, durationMs: outcome.durationMs, records, output: failed ? outcome.output : "" };
}

/** `test some::name ... ok | FAILED | ignored, reason`, as the standard harness prints it. */
export function parseCargoOutput(output: string): TestRecord[] {
  const records: TestRecord[] = [];
  for (const line of output.split("\n")) {
    const match = /^test (.+?) \.\.\. (?:.*?)(ok|FAILED|ignored)(?:, (.*))?$/.exec(line.trimEnd());
    const [, name = "", verdict = "", reason = ""] = match ?? [];
    if (verdict === "ok") records.push(makeRecord(name, "passed"));
    if (verdict === "FAILED") records.push(makeRecord(name, "failed", "see the output below"));
    if (verdict === "ignored") records.push({ name, outcome: "skipped", detail: reason, durationMs: 0 });
  }
  return records;
}

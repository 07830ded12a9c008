/** The unit tier: every file in a process of its own, as many at a time as there are cores. */
import { availableParallelism } from "node:os";
import { findTestFiles } from "./discover.ts";
import { mapBounded } from "./pool.ts";
import { printSummary } from "./progress.ts";
import { runTestFile } from "./run-file.ts";
import type { UnitResult } from "./tally.ts";

const FILE_TIMEOUT_MS = 60_000;

export interface UnitOptions {
  readonly root: string;
  readonly files?: readonly string[];
  readonly grep?: string | undefined;
  readonly env?: NodeJS.ProcessEnv;
}

export async function runUnitTests(options: UnitOptions): Promise<UnitResult[]> {
  const started = performance.now();
  const { root, grep, env = process.env } = options;
  const paths = findTestFiles(root, "unit", options.files);
  const results = await mapBounded(paths, availableParallelism(), async (path) => {
    return await runTestFile({ root, path, timeoutMs: FILE_TIMEOUT_MS, env, grep });
  });
  printSummary("unit tests", results, performance.now() - started);
  return results;
}

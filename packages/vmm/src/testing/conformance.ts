/**
 * The only definition of a correct backend: the same cases for every one, each in a world of its own.
 *
 * A backend's test calls `runBackendConformance` once per way it can run (accelerator, isolation). What a backend's
 * capabilities do not name must be refused, what they name must work.
 */
import { test, type TestContext } from "node:test";
import { ADOPTION_CASES } from "./adoption-cases.ts";
import { FAILURE_CASES } from "./failure-cases.ts";
import { LIFECYCLE_CASES } from "./lifecycle-cases.ts";
import type { ConformanceWorld } from "./world.ts";

export interface ConformanceOptions {
  /** In front of each test's name. */
  readonly name: string;
  /** Whether the host can run it; `false` after skipping the test with a reason. */
  readonly gate: (t: TestContext) => boolean;
  readonly createWorld: () => Promise<ConformanceWorld>;
}

export function runBackendConformance(options: ConformanceOptions): void {
  for (const { name, run } of [...LIFECYCLE_CASES, ...FAILURE_CASES, ...ADOPTION_CASES]) {
    test(`${options.name}: ${name}`, async (t) => {
      if (!options.gate(t)) return;
      const world = await options.createWorld();
      try {
        await run(world);
      } finally {
        await world.close();
      }
    });
  }
}

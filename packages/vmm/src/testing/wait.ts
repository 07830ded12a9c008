/** Waiting for states, never for time. */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { LaunchPlan } from "../launch-plan.ts";
import { PATIENCE_MS, type ConformanceWorld } from "./world.ts";

const STEP_MS = 10;

export async function waitFor(what: string, check: () => boolean | Promise<boolean>): Promise<void> {
  const endMs = performance.now() + PATIENCE_MS;
  while (!(await check())) {
    assert.ok(performance.now() < endMs, `did not happen in ${PATIENCE_MS} ms: ${what}`);
    await sleep(STEP_MS);
  }
}

export async function waitForConsole(world: ConformanceWorld, plan: LaunchPlan, text: string): Promise<void> {
  await waitFor(`the console shows ${JSON.stringify(text)}`, async () => (await world.readConsole(plan)).includes(text));
}

/** The promise's value, or a failure when it does not settle in time. */
export async function settled<T>(what: string, promise: Promise<T>): Promise<T> {
  const timer = new AbortController();
  try {
    const late = sleep(PATIENCE_MS, undefined, { signal: timer.signal }).then(() =>
      assert.fail(`did not settle in ${PATIENCE_MS} ms: ${what}`),
    );
    late.catch(() => undefined); // aborted when the promise settles in time
    return await Promise.race([promise, late]);
  } finally {
    timer.abort();
  }
}

export async function assertNothingLeft(world: ConformanceWorld, plan: LaunchPlan): Promise<void> {
  assert.deepEqual(await world.leftovers(plan), []);
}

/** The highest number the guest counted to so far. */
export async function readCount(world: ConformanceWorld, plan: LaunchPlan): Promise<number> {
  const numbers = [...(await world.readConsole(plan)).matchAll(/^count (\d+)\r?$/gm)].map((match) => Number(match[1]));
  return numbers.at(-1) ?? 0;
}

export async function waitForCount(world: ConformanceWorld, plan: LaunchPlan, above: number): Promise<void> {
  await waitFor(`the guest counts beyond ${above}`, async () => (await readCount(world, plan)) > above);
}

/** Adoption after the launching process died with kill -9, as root with the real QEMU. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { join } from "node:path";
import { test } from "node:test";
import { spawnTool, systemClock } from "@fluxvm/host";
import { requireRoot, requireTool } from "@fluxvm/host/testing";
import type { LaunchPlan } from "@fluxvm/vmm";
import type { DoomedReport } from "./testing/doomed-daemon.ts";
import { createQemuWorld } from "./testing/index.ts";

const PATIENCE_MS = 30_000;
const call = (): { readonly signal: AbortSignal } => ({ signal: AbortSignal.timeout(PATIENCE_MS) });

async function countOf(plan: LaunchPlan): Promise<number> {
  const text = await readFile(plan.console.logPath, "utf8").catch(() => "");
  return Number([...text.matchAll(/^count (\d+)$/gm)].at(-1)?.[1] ?? 0);
}

async function waitForCount(plan: LaunchPlan, above: number): Promise<number> {
  const { signal } = call();
  for (;;) {
    const count = await countOf(plan);
    if (count > above) return count;
    await systemClock.sleep(10, { signal });
  }
}

test("a VM outlives its daemon's kill -9 and the next one has it back", async (t) => {
  if (!requireRoot(t) || !requireTool(t, "qemu-system-x86_64")) return;
  const daemon = spawnTool({
    command: process.execPath,
    args: ["--disable-warning=ExperimentalWarning", join(import.meta.dirname, "testing/doomed-daemon.ts")],
    timeoutMs: PATIENCE_MS,
    signal: call().signal,
  });
  const death = daemon.done.catch(() => undefined); // the kill is a failure to it
  let report: DoomedReport | undefined;
  for await (const line of createInterface({ input: daemon.stdout })) {
    report = JSON.parse(line) as DoomedReport; // its own words
    break;
  }
  assert.ok(report, "the daemon said nothing");
  const { plan, record, instanceId, folder } = report;
  const before = await waitForCount(plan, 3);
  daemon.kill();
  await death;
  const world = await createQemuWorld({ accelerator: "tcg", takeOver: { instanceId, folder } });
  try {
    const meanwhile = await waitForCount(plan, before + 5);
    assert.deepEqual(
      (await world.backend.list(instanceId, call())).map((found) => [found.vmId, found.pid]),
      [[plan.vmId, record.pid]],
    );
    const vm = await world.backend.adopt(record, call());
    assert.ok(vm);
    assert.equal(await vm.status(call()), "running");
    await vm.pause(call());
    assert.equal(await vm.status(call()), "paused");
    await vm.resume(call());
    await waitForCount(plan, meanwhile);
    await vm.requestShutdown(call());
    assert.equal((await vm.exited).reason, "guest_shutdown");
    assert.deepEqual(await world.leftovers(plan), []);
    assert.equal(await world.backend.adopt(record, call()), undefined);
  } finally {
    await world.close();
  }
});

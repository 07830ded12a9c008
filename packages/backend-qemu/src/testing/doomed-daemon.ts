/**
 * Stands for a daemon that dies: launches and boots a counting guest, prints what the next one needs as one line of
 * JSON, and waits to be killed.
 */
import type { LaunchPlan, VmProcessRecord } from "@fluxvm/vmm";
import { createQemuWorld } from "./qemu-world.ts";

/** What it prints. */
export interface DoomedReport {
  readonly instanceId: string;
  readonly folder: string;
  readonly plan: LaunchPlan;
  readonly record: VmProcessRecord;
}

const LAUNCH_MS = 30_000;

if (import.meta.main) {
  const world = await createQemuWorld({ accelerator: "tcg" });
  const options = { signal: AbortSignal.timeout(LAUNCH_MS) };
  const plan = await world.plan({ kind: "count", everyMs: 20 });
  const vm = await world.backend.launch(plan, options);
  await vm.boot(options);
  const report: DoomedReport = { instanceId: world.instanceId, folder: world.folder, plan, record: vm.record };
  process.stdout.write(`${JSON.stringify(report)}\n`);
  await vm.exited; // keeps running until the kill
}

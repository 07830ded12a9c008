import assert from "node:assert/strict";
import { test } from "node:test";
import type { VmProcessRecord } from "@fluxvm/vmm";
import { planAdoption, type SeenMachine } from "./adoption-plan.ts";
import type { StoredVmState } from "./vm-state.ts";

const process: VmProcessRecord = {
  backend: "sim",
  pid: 1,
  startTimeTicks: 1,
  bootId: "b",
  pidNamespaceInode: 1,
  machine: "m",
  accelerator: "tcg",
  data: {},
};
const SEEN: readonly SeenMachine[] = ["gone", "prelaunch", "running", "paused", "ended", "unknown"];

function plan(state: StoredVmState, seen: SeenMachine, rebooted = false): string {
  const result = planAdoption(state, { seen, rebooted, wallMs: 9 });
  const detail = "reason" in result.state && result.state.phase !== "deleting" ? `(${result.state.reason})` : "";
  return `${result.state.phase}${detail} ${result.effect}`;
}

function row(state: StoredVmState, rebooted = false): readonly string[] {
  return SEEN.map((seen) => plan(state, seen, rebooted));
}

test("a creation is undone whatever is seen", () => {
  assert.deepEqual(
    new Set([...row({ phase: "creating", stopRequested: false }), ...row({ phase: "creating", stopRequested: true }, true)]),
    new Set(["deleting teardown"]),
  );
});

test("a running VM is what its machine is", () => {
  assert.deepEqual(row({ phase: "running", process }), [
    "failed(unknown) none",
    "starting boot",
    "running none",
    "paused none",
    "running none",
    "running adopt",
  ]);
  assert.deepEqual(row({ phase: "paused", process }), [
    "failed(unknown) none",
    "starting boot",
    "running none",
    "paused none",
    "running none",
    "paused adopt",
  ]);
});

test("a reboot stops what ran", () => {
  assert.equal(plan({ phase: "running", process }, "gone", true), "stopped(host_rebooted) none");
  assert.equal(plan({ phase: "starting", fresh: false }, "gone", true), "stopped(host_rebooted) none");
  assert.equal(
    plan({ phase: "stopping", goal: { kind: "restart" }, force: false, graceMs: 1, process }, "gone", true),
    "stopped(host_rebooted) none",
  );
});

test("a start goes on where it was", () => {
  assert.equal(plan({ phase: "starting", fresh: false }, "gone"), "starting launch");
  assert.deepEqual(row({ phase: "starting", fresh: false, process }), [
    "failed(unknown) none",
    "starting boot",
    "running none",
    "paused none",
    "running none",
    "starting adopt",
  ]);
  assert.equal(plan({ phase: "starting", fresh: true, process }, "gone"), "deleting teardown");
  assert.equal(plan({ phase: "starting", fresh: true, process }, "gone", true), "deleting teardown");
});

test("a boot that goes on keeps in mind that nobody knows of the VM yet", () => {
  const { state } = planAdoption({ phase: "starting", fresh: true, process }, { seen: "prelaunch", rebooted: false, wallMs: 1 });
  assert.ok(state.phase === "starting" && state.fresh);
});

test("a stop goes on, or is over when the machine is gone", () => {
  const stopping = (goal: "stopped" | "restart"): StoredVmState => ({
    phase: "stopping",
    goal: { kind: goal },
    force: false,
    graceMs: 1,
    process,
  });
  assert.equal(plan(stopping("stopped"), "running"), "stopping end");
  assert.equal(plan(stopping("stopped"), "unknown"), "stopping end");
  assert.equal(plan(stopping("stopped"), "gone"), "stopped(unknown) none");
  assert.equal(plan(stopping("restart"), "gone"), "starting launch");
});

test("resting states stay, and a deletion goes on", () => {
  const stopped: StoredVmState = { phase: "stopped", reason: "killed", atWallMs: 1 };
  assert.deepEqual(planAdoption(stopped, { seen: "gone", rebooted: true, wallMs: 1 }), { state: stopped, effect: "none", reason: "" });
  assert.equal(plan({ phase: "deleting", reason: "expired" }, "gone"), "deleting teardown");
});

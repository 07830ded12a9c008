import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { VmProcessRecord } from "@fluxvm/vmm";
import fc from "fast-check";
import { toStoredState, toVisiblePhase } from "./state-view.ts";
import {
  transition,
  VM_PHASES,
  type Decision,
  type StopGoal,
  type VmEvent,
  type VmOutcome,
  type VmPhase,
  type VmRequest,
  type VmState,
} from "./vm-state.ts";

const PROCESS: VmProcessRecord = {
  backend: "sim",
  pid: 1,
  startTimeTicks: 1,
  bootId: "b",
  pidNamespaceInode: 1,
  machine: "m",
  accelerator: "tcg",
  data: {},
};

/** The edges of the drawing in `vm-state.ts`, by phase. */
const DRAWN: Readonly<Record<VmPhase, readonly VmPhase[]>> = {
  creating: ["creating", "starting", "stopping", "deleting"],
  starting: ["starting", "running", "paused", "stopping", "stopped", "failed", "deleting"],
  running: ["starting", "pausing", "paused", "stopping", "stopped", "failed", "deleting"],
  pausing: ["starting", "paused", "running", "stopping", "stopped", "failed", "deleting"],
  paused: ["resuming", "running", "stopping", "stopped", "failed", "deleting"],
  resuming: ["starting", "running", "paused", "stopping", "stopped", "failed", "deleting"],
  stopping: ["stopping", "stopped", "starting", "failed", "deleting"],
  stopped: ["starting", "deleting"],
  failed: ["starting", "deleting"],
  deleting: ["gone"],
  gone: [],
};

const anyRequest: fc.Arbitrary<VmRequest> = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom<VmRequest>({ kind: "start" }, { kind: "pause" }, { kind: "resume" }) },
  {
    weight: 5,
    arbitrary: fc.record({ kind: fc.constantFrom("stop" as const, "restart" as const), force: fc.boolean(), graceMs: fc.nat(10_000) }),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom("requested" as const, "expired" as const).map((reason) => ({ kind: "delete" as const, reason })),
  },
);
const anyOutcome: fc.Arbitrary<VmOutcome> = fc.oneof(
  fc.constantFrom<VmOutcome>(
    { kind: "launched", process: PROCESS },
    { kind: "launch_failed", reason: "launch_failed", message: "m", atWallMs: 1 },
    { kind: "booted" },
    { kind: "boot_failed", reason: "launch_failed", message: "m" },
    { kind: "paused" },
    { kind: "pause_failed", seen: "running" },
    { kind: "pause_failed", seen: "unknown" },
    { kind: "resumed" },
    { kind: "resume_failed", seen: "paused" },
    { kind: "resume_failed", seen: "unknown" },
    { kind: "removed" },
    { kind: "adopted", seen: "prelaunch" },
    { kind: "adopted", seen: "running" },
    { kind: "adopted", seen: "paused" },
  ),
  fc
    .tuple(fc.constantFrom("guest_shutdown", "guest_reset", "guest_panic", "killed", "crashed", "unknown"), fc.boolean())
    .map(([reason, resetLoop]) => ({ kind: "ended" as const, exit: { reason } as const, atWallMs: 2, resetLoop })),
);
const anyEvent: fc.Arbitrary<VmEvent> = fc.oneof(anyRequest, anyOutcome);
const FIRST: VmState = { phase: "creating", stopRequested: false };

function walk(events: readonly VmEvent[], visit: (state: VmState, event: VmEvent, next: VmState) => void): VmState {
  let state = FIRST;
  for (const event of events) {
    const decision = transition(state, event);
    if (decision.kind !== "accepted") continue;
    visit(state, event, decision.state);
    state = decision.state;
  }
  return state;
}

const manyEvents = fc.array(anyEvent, { maxLength: 60, size: "max" });

test("no sequence of events reaches an edge that is not drawn", () => {
  fc.assert(
    fc.property(manyEvents, (events) => {
      walk(events, (state, event, next) =>
        assert.ok(DRAWN[state.phase].includes(next.phase), `${state.phase} -${event.kind}-> ${next.phase}`),
      );
    }),
    { numRuns: 3000 },
  );
});

interface Edge {
  readonly from: VmState;
  readonly event: VmEvent;
  readonly decision: Decision & { readonly kind: "accepted" };
}

/** Breadth first over states by what they look like, grace apart: all that any event leads to, from anywhere. */
function listEdges(): readonly Edge[] {
  const sample = fc.sample(anyEvent, { numRuns: 400, seed: 1 });
  const look = (state: VmState): string =>
    JSON.stringify({ graceMs: 0, ...state }, (key, value: unknown) => (key === "graceMs" ? 0 : value));
  const queue: VmState[] = [FIRST];
  const known = new Set([look(FIRST)]);
  const edges: Edge[] = [];
  for (let from = queue.shift(); from !== undefined; from = queue.shift()) {
    for (const event of sample) {
      const decision = transition(from, event);
      if (decision.kind !== "accepted") continue;
      edges.push({ from, event, decision });
      if (known.has(look(decision.state))) continue;
      known.add(look(decision.state));
      queue.push(decision.state);
    }
  }
  return edges;
}

const EDGES = listEdges();

test("every edge drawn is there, and no other", () => {
  const seen = new Map<VmPhase, Set<VmPhase>>(Object.keys(DRAWN).map((phase) => [phase as VmPhase, new Set()])); // keys of DRAWN
  for (const { from, decision } of EDGES) seen.get(from.phase)?.add(decision.state.phase);
  for (const [phase, edges] of seen) assert.deepEqual([...edges].sort(), [...DRAWN[phase]].sort(), phase);
});

test("the guest never runs before its process is on disk", () => {
  for (const { event, decision } of EDGES) {
    if (event.kind === "launched") assert.equal(decision.durability, "required");
    if (decision.effect === "boot") assert.ok("process" in decision.state && decision.state.process !== undefined);
  }
});

test("a request is on disk before it is answered for, but for stopping, which must work on a full disk", () => {
  const soft = new Set(["stop", "pause", "resume"]);
  const ofRequests = EDGES.filter(({ event }) => ["start", "stop", "restart", "pause", "resume", "delete"].includes(event.kind));
  for (const { event, decision } of ofRequests) assert.equal(decision.durability === "required", !soft.has(event.kind), event.kind);
});

test("stop and delete are never denied, and a stopped VM needs no second stop", () => {
  fc.assert(
    fc.property(manyEvents, fc.boolean(), (events, force) => {
      const state = walk(events, () => undefined);
      assert.notEqual(transition(state, { kind: "stop", force, graceMs: 1 }).kind, "denied");
      assert.notEqual(transition(state, { kind: "delete", reason: "requested" }).kind, "denied");
      if (state.phase === "stopped") assert.equal(transition(state, { kind: "stop", force, graceMs: 1 }).kind, "ignored");
    }),
    { numRuns: 2000 },
  );
});

test("a request sent again after it was accepted is ignored or denied, never done twice", () => {
  fc.assert(
    fc.property(manyEvents, anyRequest, (events, request) => {
      const first = transition(
        walk(events, () => undefined),
        request,
      );
      if (first.kind !== "accepted") return;
      assert.notEqual(transition(first.state, request).kind, "accepted");
    }),
    { numRuns: 2000 },
  );
});

test("delete is final: nothing but its end follows", () => {
  fc.assert(
    fc.property(manyEvents, manyEvents, (before, after) => {
      const decision = transition(
        walk(before, () => undefined),
        { kind: "delete", reason: "requested" },
      );
      if (decision.kind !== "accepted") return;
      let state = decision.state;
      for (const event of after) {
        const next = transition(state, event);
        if (next.kind === "accepted") state = next.state;
      }
      assert.ok(state.phase === "deleting" || state.phase === "gone");
    }),
  );
});

test("a state survives being stored, but for the two that the machine tells better", () => {
  fc.assert(
    fc.property(manyEvents, (events) => {
      walk(events, (_, __, next) => {
        const stored = toStoredState(next);
        assert.ok(VM_PHASES.includes(stored.phase));
        assert.deepEqual(JSON.parse(JSON.stringify(stored)), JSON.parse(JSON.stringify(stored)));
        if (next.phase !== "gone") assert.equal(stored.phase, toVisiblePhase(next));
      });
    }),
  );
});

const RUNNING: VmState = { phase: "running", process: PROCESS };
const STOP = { kind: "stop", force: false, graceMs: 5 } as const;

test("how a machine ends by itself decides between stopped and failed", () => {
  const phaseAfter = (reason: "guest_shutdown" | "guest_reset" | "guest_panic" | "killed" | "crashed" | "unknown"): string => {
    const decision = transition(RUNNING, { kind: "ended", exit: { reason }, atWallMs: 1 });
    return decision.kind === "accepted" ? decision.state.phase : decision.kind;
  };
  assert.deepEqual((["guest_shutdown", "guest_reset", "killed", "guest_panic", "crashed", "unknown"] as const).map(phaseAfter), [
    "stopped",
    "starting",
    "failed",
    "failed",
    "failed",
    "failed",
  ]);
});

test("a guest that reboots starts again, unless it was paused, is to stop, or does so for ever", () => {
  const reset = (resetLoop: boolean): VmEvent => ({ kind: "ended", exit: { reason: "guest_reset" }, atWallMs: 1, resetLoop });
  const after = (state: VmState, resetLoop = false): unknown => {
    const decision = transition(state, reset(resetLoop));
    if (decision.kind !== "accepted") return decision.kind;
    const { phase } = decision.state;
    const more = phase === "failed" || phase === "stopped" ? [decision.state.reason] : [];
    return [phase, ...more, decision.effect];
  };
  const live = (["running", "pausing", "resuming"] as const).map((phase): VmState => ({ phase, process: PROCESS }));
  const booting: VmState = { phase: "starting", fresh: false, process: PROCESS };
  for (const state of [...live, booting]) {
    assert.deepEqual(after(state), ["starting", "launch"], state.phase);
    assert.deepEqual(after(state, true), ["failed", "reset_loop", "none"], state.phase);
  }
  assert.deepEqual(after({ phase: "paused", process: PROCESS }), ["stopped", "guest_reset", "none"]);
  const stopping: VmState = { phase: "stopping", process: PROCESS, goal: { kind: "stopped" }, force: false, graceMs: 1 };
  assert.deepEqual(after(stopping), ["stopped", "guest_reset", "none"]);
  assert.equal(after({ phase: "deleting", reason: "requested" }), "ignored");
  assert.equal(after({ phase: "starting", fresh: false }), "ignored", "of the machine before");
});

test("a first start whose guest reboots at once is still a first start: it goes without a trace if it fails", () => {
  const fresh: VmState = { phase: "starting", fresh: true, process: PROCESS };
  const again = transition(fresh, { kind: "ended", exit: { reason: "guest_reset" }, atWallMs: 1 });
  assert.ok(again.kind === "accepted" && again.effect === "launch");
  assert.deepEqual(again.state, { phase: "starting", fresh: true });
  const loop = transition(fresh, { kind: "ended", exit: { reason: "guest_reset" }, atWallMs: 1, resetLoop: true });
  assert.ok(loop.kind === "accepted" && loop.effect === "teardown");
});

test("denials say why", () => {
  const code = (state: VmState, request: VmRequest): string => {
    const decision = transition(state, request);
    return decision.kind === "denied" ? decision.code : decision.kind;
  };
  const stopping: VmState = { phase: "stopping", process: PROCESS, goal: { kind: "stopped" }, force: false, graceMs: 1 };
  const stopped: VmState = { phase: "stopped", reason: "killed", atWallMs: 1 };
  assert.equal(code(stopping, { kind: "start" }), "VM_STOP_PENDING");
  assert.equal(code(stopping, { kind: "pause" }), "VM_STOP_PENDING");
  assert.equal(code({ phase: "deleting", reason: "requested" }, { kind: "start" }), "VM_DELETE_PENDING");
  assert.equal(code({ phase: "gone", reason: "requested" }, { kind: "start" }), "VM_NOT_FOUND");
  assert.equal(code({ phase: "paused", process: PROCESS }, { kind: "start" }), "VM_STATE_DENIED");
  assert.equal(code(stopped, { kind: "pause" }), "VM_NOT_RUNNING");
  assert.equal(code(stopped, { kind: "resume" }), "VM_NOT_PAUSED");
  assert.equal(code(FIRST, { kind: "restart", force: false, graceMs: 1 }), "VM_STATE_DENIED");
});

test("a forced stop overtakes a graceful one, a stop takes back a restart", () => {
  const stopping = (goal: StopGoal, force: boolean): VmState => ({ phase: "stopping", process: PROCESS, goal, force, graceMs: 5 });
  const forced = transition(stopping({ kind: "stopped" }, false), { ...STOP, force: true });
  assert.ok(forced.kind === "accepted" && forced.effect === "end");
  assert.equal(transition(stopping({ kind: "stopped" }, true), { ...STOP, force: true }).kind, "ignored");
  const taken = transition(stopping({ kind: "restart" }, false), STOP);
  assert.ok(
    taken.kind === "accepted" && taken.effect === "none" && taken.state.phase === "stopping" && taken.state.goal.kind === "stopped",
  );
});

test("a stop during creation lets the creation finish and the guest never run", () => {
  const asked = transition(FIRST, STOP);
  assert.ok(asked.kind === "accepted" && asked.effect === "none");
  const launched = transition(asked.state, { kind: "launched", process: PROCESS });
  assert.ok(launched.kind === "accepted" && launched.effect === "end" && launched.state.phase === "stopping");
});

test("the drawing in the architecture's page is the one of the code", () => {
  const page = readFileSync(join(import.meta.dirname, "../../../docs/architecture/state-machines.md"), "utf8");
  const drawing = /^## VM [\s\S]*?```mermaid\n([\s\S]*?)```/m.exec(page)?.[1] ?? "";
  const onPage = [...drawing.matchAll(/^ +(\w+) --> (\w+|\[\*\])/gm)].map(
    ([, from = "", to = ""]) => `${from} ${to.replace("[*]", "gone")}`,
  );
  const ways = (phase: VmPhase): string[] => DRAWN[phase].filter((to) => to !== phase).map((to) => `${phase} ${to}`);
  const phases = Object.keys(DRAWN) as VmPhase[]; // keys of DRAWN
  const inCode = phases.filter((phase) => phase !== "pausing" && phase !== "resuming").flatMap(ways);
  const passing = ["pausing paused", "pausing running", "resuming running", "resuming paused"];
  assert.deepEqual(onPage.toSorted(), [...inCode, ...passing].toSorted());
});

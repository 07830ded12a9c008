import { strict as assert } from "node:assert";
import { test } from "node:test";
import { planVmUsers } from "./vm-users.ts";

const RANGE = { start: 2_000_000, count: 65_536 };

function startOf(instanceId: string, foreign: readonly number[] = []): number {
  const users = planVmUsers(RANGE, instanceId, new Set(foreign));
  assert.ok(
    users.kind === "range" && users.start >= RANGE.start && users.start + users.count === RANGE.start + RANGE.count && users.count >= 1024,
  );
  return users.start;
}

test("an instance always begins at the same place, and instances spread over the range", () => {
  assert.equal(startOf("inst-a"), startOf("inst-a"));
  const starts = new Set(Array.from({ length: 200 }, (_, i) => startOf(`inst-${i}`)));
  assert.ok(starts.size > 40, `${starts.size} places`);
});

test("a place where others' processes run is passed over", () => {
  const usual = startOf("inst-a");
  const next = startOf("inst-a", [usual + 7]);
  assert.notEqual(next, usual);
  assert.equal(
    startOf(
      "inst-a",
      Array.from({ length: 64 }, (_, i) => RANGE.start + i * 1024),
    ),
    usual,
    "a full range is no reason to refuse",
  );
});

test("a range smaller than a place is used from its beginning", () => {
  assert.deepEqual(planVmUsers({ start: 5000, count: 10 }, "inst-a", new Set()), { kind: "range", start: 5000, count: 10 });
});

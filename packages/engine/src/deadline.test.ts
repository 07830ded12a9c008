import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { computeDeadline, computeExpiryWallMs, computeRemainingMs, rebaseDeadline, type Now } from "./deadline.ts";

const NOW: Now = { bootId: "a", bootMs: 1000, wallMs: 5_000_000 };

test("within a boot no step of the wall clock changes what remains", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 1e9 }),
      fc.integer({ min: 0, max: 1e9 }),
      fc.integer({ min: -1e12, max: 1e12 }),
      (ttlMs, passedMs, stepMs) => {
        const deadline = computeDeadline(ttlMs, NOW);
        const later = { bootId: "a", bootMs: NOW.bootMs + passedMs, wallMs: NOW.wallMs + passedMs + stepMs };
        assert.equal(computeRemainingMs(deadline, later), ttlMs - passedMs);
        assert.equal(rebaseDeadline(deadline, later), deadline);
      },
    ),
  );
});

test("across a reboot the wall clock counts, once", () => {
  const deadline = computeDeadline(60_000, NOW);
  const rebooted = { bootId: "b", bootMs: 10, wallMs: NOW.wallMs + 20_000 };
  assert.equal(computeRemainingMs(deadline, rebooted), 40_000);
  const rebased = rebaseDeadline(deadline, rebooted);
  assert.equal(computeRemainingMs(rebased, { ...rebooted, bootMs: 10_010, wallMs: 0 }), 30_000);
});

test("what people see follows the boot clock after a step, and does not wobble without one", () => {
  const deadline = computeDeadline(60_000, NOW);
  assert.equal(computeExpiryWallMs(deadline, { ...NOW, bootMs: 1300, wallMs: NOW.wallMs + 298 }), NOW.wallMs + 60_000);
  assert.equal(computeExpiryWallMs(deadline, { ...NOW, wallMs: NOW.wallMs + 3_600_000 }), NOW.wallMs + 3_660_000);
});

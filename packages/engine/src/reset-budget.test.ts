import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { MAX_RESETS, ResetBudget, SETTLED_MS } from "./reset-budget.ts";

/** Lives of the given lengths, each ended by a reset: how many were followed by another. */
function spendAll(budget: ResetBudget, lives: readonly number[]): number {
  let now = 1_000;
  let followed = 0;
  for (const ms of lives) {
    budget.begin(now);
    now += ms;
    if (!budget.spend(now)) break;
    followed += 1;
  }
  return followed;
}

const short = fc.integer({ min: 0, max: SETTLED_MS - 1 });

test("short lives in a row are bounded, whatever their length", () => {
  fc.assert(
    fc.property(fc.array(short, { minLength: MAX_RESETS + 1, maxLength: 20 }), (lives) => {
      assert.equal(spendAll(new ResetBudget(), lives), MAX_RESETS);
    }),
  );
});

test("never more than the bound in a row between two lives that settled", () => {
  fc.assert(
    fc.property(fc.array(fc.oneof(short, fc.constant(SETTLED_MS)), { maxLength: 60 }), (lives) => {
      const followed = spendAll(new ResetBudget(), lives);
      let row = 0;
      const ends = lives.findIndex((ms) => {
        row = ms >= SETTLED_MS ? 1 : row + 1;
        return row > MAX_RESETS;
      });
      assert.equal(followed, ends === -1 ? lives.length : ends);
    }),
  );
});

test("clearing gives back the whole budget; a machine that never ran counts as a short life", () => {
  const budget = new ResetBudget();
  assert.equal(spendAll(budget, Array<number>(MAX_RESETS).fill(0)), MAX_RESETS);
  assert.equal(budget.spend(5_000_000), false);
  budget.clear();
  for (let i = 0; i < MAX_RESETS; i += 1) assert.equal(budget.spend(9_000_000), true);
  assert.equal(budget.spend(9_000_000), false);
});

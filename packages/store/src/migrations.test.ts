import assert from "node:assert/strict";
import { test } from "node:test";
import { MIGRATIONS, planMigration } from "./migrations.ts";

test("a new database gets every step, a current one none, a newer one is refused", () => {
  assert.deepEqual(
    planMigration(0)?.map((step) => step.to),
    MIGRATIONS.map((_, i) => i + 1),
  );
  assert.deepEqual(planMigration(MIGRATIONS.length), []);
  assert.equal(planMigration(MIGRATIONS.length + 1), undefined);
});

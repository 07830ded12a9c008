import assert from "node:assert/strict";
import { test } from "node:test";
import { Scope } from "./scope.ts";

test("releases run in reverse, each once", async () => {
  const scope = new Scope();
  const order: string[] = [];
  for (const name of ["disk", "tap", "process"]) scope.add(name, async () => void order.push(name));
  assert.deepEqual(await scope.release(), []);
  assert.deepEqual(order, ["process", "tap", "disk"]);
  assert.deepEqual(await scope.release(), []);
  assert.equal(order.length, 3);
});

test("one failure does not stop the others and is reported by name", async () => {
  const scope = new Scope();
  const order: string[] = [];
  scope.add("disk", async () => void order.push("disk"));
  scope.add("tap", async () => await Promise.reject(new Error("busy")));
  scope.add("sync", () => {
    throw new Error("at once");
  });
  const failures = await scope.release();
  assert.deepEqual(
    failures.map((f) => [f.name, (f.error as Error).message]),
    [
      ["sync", "at once"],
      ["tap", "busy"],
    ],
  );
  assert.deepEqual(order, ["disk"]);
});

test("committed holdings are not released", async () => {
  const scope = new Scope();
  let released = false;
  scope.add("disk", async () => {
    released = true;
  });
  scope.commit();
  await scope.release();
  assert.equal(released, false);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import { Interrupts } from "./interrupts.ts";
import { FakeEnvironment } from "./testing/fake-environment.ts";

test("the first signal cancels, the second ends the process", () => {
  const environment = new FakeEnvironment();
  const interrupts = new Interrupts(environment);
  environment.send("SIGTERM");
  assert.ok(isPlatformError(interrupts.signal.reason, "REQUEST_CANCELLED"));
  assert.throws(() => environment.send("SIGINT"), /exit 130/);
  interrupts.close();
  assert.equal(environment.leftovers, 0);
});

test("a captured signal goes to its handler alone, until released", () => {
  const environment = new FakeEnvironment();
  const interrupts = new Interrupts(environment);
  const seen: string[] = [];
  const release = interrupts.capture((name) => seen.push(name));
  environment.send("SIGINT");
  environment.send("SIGHUP");
  assert.deepEqual([seen, interrupts.signal.aborted], [["SIGINT", "SIGHUP"], false]);
  release();
  environment.send("SIGINT");
  assert.deepEqual([seen.length, interrupts.signal.aborted], [2, true]);
});

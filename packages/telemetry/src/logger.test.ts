import assert from "node:assert/strict";
import { test } from "node:test";
import { PlatformError } from "@fluxvm/core";
import { createLogger, createNullLogger, describeError } from "./logger.ts";
import { createMemoryLogger } from "./testing/memory-logger.ts";

test("a line is one JSON object with level, time, message and fields", () => {
  const written: string[] = [];
  const logger = createLogger({ level: "info", fields: { app: "x" }, destination: { write: (line) => void written.push(line) } });
  logger.info({ vmId: "vm-1" }, "vm started");
  assert.equal(written.length, 1);
  assert.match(written[0] ?? "", /^\{.*\}\n$/);
  const line = JSON.parse(written[0] ?? "") as Record<string, unknown>;
  assert.deepEqual(
    { level: line["level"], msg: line["msg"], vmId: line["vmId"], app: line["app"] },
    { level: "info", msg: "vm started", vmId: "vm-1", app: "x" },
  );
  assert.ok(!Number.isNaN(Date.parse(String(line["time"]))));
});

test("lines below the level are not written, and a child keeps level and fields", () => {
  const written: string[] = [];
  const logger = createLogger({ level: "warn", destination: { write: (line) => void written.push(line) } });
  const child = logger.child({ vmId: "vm-2" });
  child.info("dropped");
  child.warn("kept");
  assert.equal(written.length, 1);
  assert.equal((JSON.parse(written[0] ?? "") as Record<string, unknown>)["vmId"], "vm-2");
});

test("secrets are blanked at the top and one level down", () => {
  const { logger, lines } = createMemoryLogger();
  logger.info({ token: "t0p", request: { authorization: "Bearer t0p", path: "/v1" } }, "request");
  assert.ok(!JSON.stringify(lines).includes("t0p"));
  assert.deepEqual(lines[0]?.["request"], { authorization: "[redacted]", path: "/v1" });
});

test("an error field shows code, class, details and the chain of causes", () => {
  const { logger, lines } = createMemoryLogger();
  const cause = new Error("connect refused");
  logger.error({ err: new PlatformError("VM_LAUNCH_FAILED", "Cannot launch", { cause, details: { pid: 7 } }) }, "launch failed");
  const err = lines[0]?.["err"] as Record<string, unknown>;
  assert.equal(err["code"], "VM_LAUNCH_FAILED");
  assert.equal(err["class"], "internal");
  assert.deepEqual(err["details"], { pid: 7 });
  assert.equal((err["cause"] as Record<string, unknown>)["message"], "connect refused");
});

test("a cycle of causes and a thrown string are described, not followed forever", () => {
  const a = new Error("a");
  const b = new Error("b", { cause: a });
  a.cause = b;
  assert.ok(JSON.stringify(describeError(a)).length < 20_000);
  assert.deepEqual(describeError("boom"), { message: "boom" });
});

test("the null logger takes everything and gives itself as child", () => {
  const logger = createNullLogger();
  logger.child({ a: 1 }).fatal({ b: 2 }, "nothing");
});

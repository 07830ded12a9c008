import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { readBootId, systemClock } from "./system-clock.ts";

test("boot time agrees with the kernel's and never goes back", () => {
  const uptimeMs = Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]) * 1000;
  assert.ok(Math.abs(systemClock.bootMs() - uptimeMs) < 200);
  let last = 0;
  for (let i = 0; i < 10_000; i += 1) {
    const now = systemClock.bootMs();
    assert.ok(now >= last);
    last = now;
  }
});

test("a timer fires once and not before its time; a cancelled one never", async () => {
  const startMs = systemClock.bootMs();
  let cancelled = false;
  systemClock.schedule(5, () => (cancelled = true))();
  await systemClock.sleep(20);
  assert.ok(systemClock.bootMs() - startMs >= 19);
  assert.equal(cancelled, false);
});

test("an aborted sleep ends with the reason", async () => {
  const controller = new AbortController();
  const sleep = systemClock.sleep(60_000, { signal: controller.signal });
  controller.abort(new Error("enough"));
  await assert.rejects(sleep, /enough/);
  await assert.rejects(systemClock.sleep(1, { signal: controller.signal }), /enough/);
});

test("the boot id is a UUID", () => {
  assert.match(readBootId(), /^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { computeExit, guestEndOf } from "./exit-reason.ts";
import { parseStatus } from "./qemu-status.ts";

test("events tell why the guest ended, or nothing", () => {
  const reason = (name: string, data = {}): string | undefined => guestEndOf({ name, data })?.reason;
  assert.equal(reason("SHUTDOWN", { guest: true, reason: "guest-shutdown" }), "guest_shutdown");
  assert.equal(reason("SHUTDOWN", { guest: true, reason: "guest-reset" }), "guest_reset");
  assert.equal(reason("SHUTDOWN", { guest: true, reason: "guest-panic" }), "guest_panic");
  assert.equal(reason("GUEST_PANICKED", { action: "pause" }), "guest_panic");
  assert.equal(reason("SHUTDOWN", { guest: false, reason: "host-qmp-quit" }), undefined);
  assert.equal(reason("SHUTDOWN", { guest: false, reason: "host-signal" }), undefined);
  assert.equal(reason("SHUTDOWN", {}), undefined);
  assert.equal(reason("RESET", { reason: "guest-reset" }), undefined);
});

test("the guest's reason wins over the process's, the kill over what it caused", () => {
  const panic = { reason: "guest_panic" as const };
  assert.equal(computeExit({ signal: "SIGKILL" }, panic, true).reason, "guest_panic");
  assert.equal(computeExit({ signal: "SIGKILL" }, undefined, true).reason, "killed");
  assert.equal(computeExit({ unknown: true }, undefined, true).reason, "killed");
});

test("ends without a word from the guest", () => {
  assert.deepEqual(computeExit({ signal: "SIGTERM" }, undefined, false).reason, "killed");
  assert.deepEqual(computeExit({ code: 0 }, undefined, false).reason, "killed");
  assert.deepEqual(computeExit({ code: 1 }, undefined, false).reason, "crashed");
  assert.deepEqual(computeExit({ signal: "SIGSEGV" }, undefined, false).reason, "crashed");
  assert.match(computeExit({ signal: "SIGSYS" }, undefined, false).message ?? "", /sandbox/);
  assert.deepEqual(computeExit({ unknown: true }, undefined, false).reason, "unknown");
  assert.deepEqual(computeExit({ code: 3 }, undefined, false).code, 3);
});

test("run states, and answers that are none", () => {
  for (const [status, kind] of [
    ["prelaunch", "prelaunch"],
    ["running", "running"],
    ["suspended", "running"],
    ["paused", "paused"],
    ["io-error", "running"],
    ["shutdown", "ended"],
    ["guest-panicked", "ended"],
    ["internal-error", "ended"],
  ] as const) {
    assert.equal(parseStatus({ status, running: false })?.kind, kind, status);
  }
  for (const answer of [undefined, null, 1, "running", [], {}, { status: 1 }, { status: "asleep" }])
    assert.equal(parseStatus(answer), undefined);
});

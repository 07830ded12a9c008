import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { assertNever, assert as ensureTrue, AssertionError } from "../assert.ts";
import { ERROR_CATALOGUE, ERROR_CLASSES, isErrorCode, type ErrorCode } from "./catalogue.ts";
import { fromErrorBody, invalidField, isPlatformError, PlatformError, toErrorBody, toPlatformError } from "./platform-error.ts";

const CODES = Object.keys(ERROR_CATALOGUE) as ErrorCode[];

test("every code is in capitals, has a known class and a sentence of help", () => {
  for (const code of CODES) {
    assert.match(code, /^[A-Z]+(_[A-Z0-9]+)*$/);
    assert.ok(ERROR_CATALOGUE[code].class in ERROR_CLASSES, code);
    assert.match(ERROR_CATALOGUE[code].help, /^[A-Z].{10,}[.]$/, code);
  }
});

test("classes map as the architecture says", () => {
  assert.deepEqual(Object.fromEntries(Object.entries(ERROR_CLASSES).map(([name, row]) => [name, [row.http, row.grpc, row.exit]])), {
    invalid_argument: [400, 3, 2],
    unauthenticated: [401, 16, 5],
    permission_denied: [403, 7, 5],
    not_found: [404, 5, 3],
    already_exists: [409, 6, 4],
    failed_precondition: [409, 9, 4],
    conflict: [409, 10, 4],
    throttled: [429, 8, 6],
    capacity_exhausted: [507, 8, 7],
    unavailable: [503, 14, 6],
    deadline_exceeded: [504, 4, 6],
    cancelled: [499, 1, 130],
    unsupported: [501, 12, 2],
    data_loss: [500, 15, 1],
    internal: [500, 13, 1],
  });
});

test("an error knows class, status and exit code from its code", () => {
  const error = new PlatformError("VM_NOT_FOUND", "No such VM");
  assert.deepEqual([error.class, error.httpStatus, error.exitCode], ["not_found", 404, 3]);
  assert.equal(isPlatformError(error, "VM_NOT_FOUND"), true);
  assert.equal(isPlatformError(error, "IMAGE_NOT_FOUND"), false);
  assert.equal(isPlatformError(new Error("x")), false);
});

test("the body on the wire has no stack, cause or details", () => {
  const error = new PlatformError("INTERNAL", "Internal error", { cause: new Error("/secret/path"), details: { path: "/secret/path" } });
  const body = toErrorBody(error, "req-1");
  assert.deepEqual(body, { code: "INTERNAL", class: "internal", message: "Internal error", requestId: "req-1" });
  assert.ok(!JSON.stringify(body).includes("secret"));
});

test("any error survives the wire", () => {
  const field = fc.record({ path: fc.string(), message: fc.string() }, { noNullPrototype: true });
  fc.assert(
    fc.property(fc.constantFrom(...CODES), fc.string(), fc.array(field), (code, message, fields) => {
      const sent = JSON.parse(JSON.stringify(toErrorBody(new PlatformError(code, message, { fields })))) as ReturnType<typeof toErrorBody>;
      const got = fromErrorBody(sent);
      assert.deepEqual([got.code, got.message, got.fields], [code, message, fields]);
    }),
  );
});

test("a code of a newer peer becomes INTERNAL and keeps its message", () => {
  const got = fromErrorBody({ code: "toString", class: "x", message: "from the future" });
  assert.deepEqual([got.code, got.message], ["INTERNAL", "from the future"]);
  assert.equal(isErrorCode("hasOwnProperty"), false);
});

test("anything thrown becomes one of ours, once", () => {
  const own = new PlatformError("VM_EXITED", "x");
  assert.equal(toPlatformError(own), own);
  assert.equal(toPlatformError(AbortSignal.abort().reason).code, "REQUEST_CANCELLED");
  assert.equal(toPlatformError(new DOMException("late", "TimeoutError")).code, "DEADLINE_EXCEEDED");
  const cause = new Error("/etc/shadow is odd");
  const wrapped = toPlatformError(cause);
  assert.deepEqual([wrapped.code, wrapped.message, wrapped.cause], ["INTERNAL", "Internal error", cause]);
  assert.equal(toPlatformError("text").code, "INTERNAL");
});

test("a bad field is named in message and fields", () => {
  const error = invalidField("network.mode", "must be user or none");
  assert.equal(error.message, "Invalid network.mode: must be user or none");
  assert.deepEqual(error.fields, [{ path: "network.mode", message: "must be user or none" }]);
});

test("assertions are not operating errors", () => {
  assert.throws(
    () => ensureTrue(false, "broken"),
    (e) => e instanceof AssertionError && !isPlatformError(e) && e.message === "broken",
  );
  ensureTrue(1, "fine");
  assert.throws(() => assertNever("odd" as never, "state"), /unexpected state: "odd"/);
});

import { strict as assert } from "node:assert";
import { test } from "node:test";
import { PlatformError } from "@fluxvm/core";
import { createTestApi } from "./testing/test-api.ts";

test("an unknown body field is refused with the field that was likely meant, by its dotted path", async () => {
  const { ask } = await createTestApi();
  const reply = await ask("POST", "/v1/vms", { json: { name: "a", vcpu: 2 } });
  assert.equal(reply.status, 400);
  assert.equal(reply.body["code"], "FIELD_UNKNOWN");
  assert.equal(reply.body["class"], "invalid_argument");
  assert.match(String(reply.body["message"]), /Unknown field "vcpu", did you mean "vcpus"/);
  const nested = await ask("POST", "/v1/vms", {
    json: { name: "a", network: { mode: "user", forwards: [{ host_port: 1, guestport: 2, guest_port: 2 }] } },
  });
  assert.match(String(nested.body["message"]), /"network.forwards.0.guestport", did you mean "network.forwards.0.guest_port"/);
});

test("a field of the specification that is not served is refused by name as unsupported", async () => {
  const { ask } = await createTestApi();
  const reply = await ask("POST", "/v1/vms", { json: { name: "a", hugepages: true } });
  assert.equal(reply.status, 501);
  assert.equal(reply.body["code"], "FIELD_UNSUPPORTED");
  assert.deepEqual(reply.body["fields"], [{ path: "hugepages", message: "is not served yet" }]);
  for (const [json, path] of [
    [{ name: "a", agent: { enabled: true, port: 17777 } }, "agent.port"],
    [{ name: "a", agent: { token: "t" } }, "agent.token"],
    [{ name: "a", network: { mode: "tap", bridge: "br0" } }, "network.mode"],
    [{ name: "a", network: { mode: "macvtap", parent: "eth0" } }, "network.mode"],
    [{ name: "a", cloud_init: { hostname: "h", static_network: {} } }, "cloud_init.static_network"],
  ] as const) {
    const nested = await ask("POST", "/v1/vms", { json });
    assert.deepEqual([nested.status, nested.body["code"]], [501, "FIELD_UNSUPPORTED"], path);
    assert.deepEqual(nested.body["fields"], [{ path, message: "is not served yet" }]);
  }
});

test("wrong types are never coerced and every wrong field is listed", async () => {
  const { ask, platform } = await createTestApi();
  const reply = await ask("POST", "/v1/vms", {
    json: { name: "../etc", vcpus: "2", memory_mib: -1, disk_size_gib: 1e300, labels: { "a b": "c" } },
  });
  assert.equal(reply.status, 400);
  assert.equal(reply.body["code"], "REQUEST_INVALID");
  const fields = reply.body["fields"] as { path: string }[];
  assert.deepEqual(fields.map((f) => f.path).toSorted(), ["disk_size_gib", "labels", "memory_mib", "name", "vcpus"]);
  assert.deepEqual(await platform.vms.list({}), []);
});

test("a variant of a union is told apart by its tag", async () => {
  const { ask } = await createTestApi();
  const unknownMode = await ask("POST", "/v1/vms", { json: { name: "a", network: { mode: "bridge" } } });
  assert.match(String(unknownMode.body["message"]), /"network.mode": must be one of "none", "user"/);
  const noMode = await ask("POST", "/v1/vms", { json: { name: "a", network: {} } });
  assert.match(String(noMode.body["message"]), /network.mode/);
  const wrongTtl = await ask("PATCH", "/v1/vms/a", { json: { ttl_seconds: "soon" } });
  assert.match(String(wrongTtl.body["message"]), /ttl_seconds/);
});

for (const [name, payload, pattern] of [
  ["cut off", '{"name": "a"', /Malformed JSON/],
  ["not JSON", "name=a", /Malformed JSON/],
  ["twice the same key", '{"name": "a", "name": "b"}', /"name" appears twice/],
  ["twice the same key, escaped", '{"name": "a", "n\\u0061me": "b"}', /"name" appears twice/],
  ["a prototype", '{"name": "a", "__proto__": {"vcpus": 9}}', /__proto__/],
  ["nested without end", "[".repeat(20_000), /nested deeper/],
  ["null", "null", /must be an object/],
  ["a list", "[]", /must be an object/],
] as const) {
  test(`a body that is ${name} is refused`, async () => {
    const { ask } = await createTestApi();
    const reply = await ask("POST", "/v1/vms", { payload, headers: { "content-type": "application/json" } });
    assert.equal(reply.status, 400);
    assert.equal(reply.body["code"], "REQUEST_INVALID");
    assert.match(String(reply.body["message"]), pattern);
  });
}

test("equal keys in different objects, and text that looks like keys, are no duplicates", async () => {
  const { ask } = await createTestApi();
  const payload =
    '{"name": "a", "cloud_init": {"write_files": [{"path": "/a", "content": "{\\"path\\": 1, \\"path\\": 2}"}, {"path": "/b", "content": ""}]}}';
  const reply = await ask("POST", "/v1/vms", { payload, headers: { "content-type": "application/json" } });
  assert.equal(reply.status, 201, reply.text);
});

test("bytes that are not UTF-8 are refused", async () => {
  const { ask } = await createTestApi();
  const payload = Buffer.concat([Buffer.from('{"name": "'), Buffer.from([0xff, 0xfe]), Buffer.from('"}')]);
  const reply = await ask("POST", "/v1/vms", { payload, headers: { "content-type": "application/json" } });
  assert.match(String(reply.body["message"]), /not UTF-8/);
});

test("a missing body is refused where a field is required, and taken as empty where none is", async () => {
  const { ask } = await createTestApi();
  const create = await ask("POST", "/v1/vms");
  assert.equal(create.status, 400);
  assert.match(String(create.body["message"]), /needs a JSON body/);
  await ask("POST", "/v1/vms", { json: { name: "a" } });
  assert.equal((await ask("POST", "/v1/vms/a/stop")).status, 200);
  const emptyTyped = await ask("POST", "/v1/vms/a/start", { payload: "", headers: { "content-type": "application/json" } });
  assert.equal(emptyTyped.status, 200);
});

test("another content type, or none, is 415", async () => {
  const { ask } = await createTestApi();
  for (const headers of [
    { "content-type": "text/plain" },
    { "content-type": "application/x-www-form-urlencoded" },
    { "content-type": "application/jsonx" },
  ]) {
    const reply = await ask("POST", "/v1/vms", { payload: '{"name":"a"}', headers });
    assert.equal(reply.status, 415);
    assert.equal(reply.body["code"], "MEDIA_TYPE_UNSUPPORTED");
  }
  const charset = await ask("POST", "/v1/vms", { payload: '{"name":"a"}', headers: { "content-type": "application/json; charset=utf-8" } });
  assert.equal(charset.status, 201);
});

test("a body over the limit is 413, whether its length is declared or not", async () => {
  const { ask } = await createTestApi();
  const payload = JSON.stringify({ name: "a", kernel_args: "x".repeat(70_000) });
  const declared = await ask("POST", "/v1/vms", { payload, headers: { "content-type": "application/json" } });
  assert.equal(declared.status, 413);
  assert.equal(declared.body["code"], "PAYLOAD_TOO_LARGE");
});

test("queries are strict: unknown, repeated, wrong and badly encoded parameters are 400", async () => {
  const { ask } = await createTestApi();
  await ask("POST", "/v1/vms", { json: { name: "a" } });
  const unknown = await ask("GET", "/v1/vms?labels=a");
  assert.equal(unknown.status, 400);
  assert.match(String(unknown.body["message"]), /Unknown query parameter "labels", did you mean "label"/);
  for (const url of [
    "/v1/vms?name=a&name=b",
    "/v1/vms?name=%E0%A4%A",
    "/v1/vms?state=asleep",
    "/v1/vms/a/logs?lines=1.5",
    "/v1/vms/a/logs?lines=1e3",
    "/v1/vms/a/logs?follow=yes",
    "/v1/vms/a/wait",
    "/v1/vms/a/wait?for=flying",
    "/v1/vms/a?x=1",
  ]) {
    const reply = await ask("GET", url);
    assert.equal(reply.status, 400, url);
    assert.equal(reply.body["class"], "invalid_argument", url);
  }
});

test("bad percent-encoding in the path is a typed error", async () => {
  const { ask } = await createTestApi();
  const reply = await ask("GET", "/v1/vms/%ZZ");
  assert.equal(reply.status, 400);
  assert.equal(reply.body["code"], "REQUEST_INVALID");
  assert.equal(typeof reply.body["requestId"], "string");
  assert.equal(reply.headers["x-request-id"], reply.body["requestId"]);
});

test("an unknown route is 404, a known one under another method 405 with Allow", async () => {
  const { ask } = await createTestApi();
  const unknown = await ask("GET", "/v2/vms");
  assert.equal(unknown.status, 404);
  assert.equal(unknown.body["code"], "ROUTE_UNKNOWN");
  const method = await ask("DELETE", "/v1/vms");
  assert.equal(method.status, 405);
  assert.equal(method.body["code"], "METHOD_NOT_ALLOWED");
  assert.equal(method.headers["allow"], "POST, GET");
});

test("a sane request id is kept, another is replaced, and both come back and are logged", async () => {
  const { ask, lines } = await createTestApi();
  const kept = await ask("GET", "/v1/version", { headers: { "x-request-id": "build-17.a" } });
  assert.equal(kept.headers["x-request-id"], "build-17.a");
  const replaced = await ask("GET", "/v1/vms/none", { headers: { "x-request-id": 'a"b c' } });
  assert.match(String(replaced.headers["x-request-id"]), /^req-[0-9a-z]{16}$/);
  assert.equal(replaced.body["requestId"], replaced.headers["x-request-id"]);
  const logged = lines.filter((l) => l.msg === "request");
  assert.deepEqual(
    logged.map((l) => [l["requestId"], l["route"], l["statusCode"], l["code"]]),
    [
      ["build-17.a", "/v1/version", 200, undefined],
      [replaced.headers["x-request-id"], "/v1/vms/:vm", 404, "VM_NOT_FOUND"],
    ],
  );
});

test("a fault of ours says nothing to the caller and everything to the log", async () => {
  const { ask, platform, lines } = await createTestApi();
  platform.failNext("vms.list", new Error("secret path /var/lib/x"));
  const reply = await ask("GET", "/v1/vms");
  assert.equal(reply.status, 500);
  assert.equal(reply.body["code"], "INTERNAL");
  assert.doesNotMatch(reply.text, /secret|stack|\.ts/);
  const line = lines.find((l) => l.level === "error");
  assert.match(JSON.stringify(line), /secret path/);
  assert.equal(line?.["requestId"], reply.body["requestId"]);
});

test("Retry-After is in whole seconds, rounded up", async () => {
  const { ask, platform } = await createTestApi();
  platform.failNext("vms.list", new PlatformError("QUEUE_FULL", "Too many", { retryAfterMs: 1200 }));
  const reply = await ask("GET", "/v1/vms");
  assert.equal(reply.status, 429);
  assert.equal(reply.headers["retry-after"], "2");
});

test("details and causes never leave", async () => {
  const { ask, platform } = await createTestApi();
  platform.failNext(
    "vms.list",
    new PlatformError("VM_LAUNCH_FAILED", "QEMU did not start", { details: { path: "/run/secret" }, cause: new Error("inner secret") }),
  );
  const reply = await ask("GET", "/v1/vms");
  assert.deepEqual(Object.keys(reply.body).toSorted(), ["class", "code", "message", "requestId"]);
});

test("a call that takes longer than its deadline is 504 and its signal fires", async () => {
  const { ask, platform, clock } = await createTestApi();
  const hung = platform.hangNext("vms.create");
  const pending = ask("POST", "/v1/vms", { json: { name: "a" } });
  await hung.started;
  await clock.advance(4999);
  await clock.advance(1);
  const reply = await pending;
  assert.equal(reply.status, 504);
  assert.equal(reply.body["code"], "DEADLINE_EXCEEDED");
  assert.ok((await hung.aborted) instanceof PlatformError);
});

test("waiting that the caller asks for is added to the deadline", async () => {
  const { ask, platform, clock } = await createTestApi();
  const hung = platform.hangNext("vms.create");
  let isDone = false;
  const pending = ask("POST", "/v1/vms?ready=exec", { json: { name: "a" } }).then((reply) => {
    isDone = true;
    return reply;
  });
  await hung.started;
  await clock.advance(7999);
  assert.equal(isDone, false);
  await clock.advance(1);
  assert.equal((await pending).status, 504);
});

test("metrics are served and count by route", async () => {
  const { ask } = await createTestApi();
  await ask("GET", "/v1/vms/none");
  const reply = await ask("GET", "/metrics");
  assert.equal(reply.status, 200);
  assert.match(String(reply.headers["content-type"]), /^text\/plain; version=0\.0\.4/);
  assert.match(reply.text, /fluxvm_api_requests_total\{route="\/v1\/vms\/:vm",method="GET",status="404"\} 1/);
});

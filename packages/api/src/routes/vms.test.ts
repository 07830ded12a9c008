import { strict as assert } from "node:assert";
import { test } from "node:test";
import { settle } from "@fluxvm/core/testing";
import { createTestApi } from "../testing/test-api.ts";

test("create answers 201 with where the VM is, and defaults are filled in", async () => {
  const { ask } = await createTestApi();
  const reply = await ask("POST", "/v1/vms", { json: { name: "web-1", labels: { app: "web" } } });
  assert.equal(reply.status, 201);
  assert.equal(reply.headers["location"], `/v1/vms/${String(reply.body["id"])}`);
  assert.deepEqual([reply.body["vcpus"], reply.body["memory_mib"], reply.body["state"]], [1, 512, "running"]);
  assert.equal(reply.body["phases"], undefined);
  const again = await ask("POST", "/v1/vms", { json: { name: "web-1" } });
  assert.equal(again.status, 409);
  assert.equal(again.body["code"], "VM_NAME_TAKEN");
});

test("both spellings of the ready wait give the phases' times", async () => {
  const { ask } = await createTestApi();
  for (const [name, query] of [
    ["a", "ready=exec"],
    ["b", "wait_first_command=true"],
  ] as const) {
    const reply = await ask("POST", `/v1/vms?${query}`, { json: { name } });
    assert.deepEqual(reply.body["phases"], { create_done_ms: 10, agent_wait_ms: 15, first_exec_ms: 5 });
    assert.equal(reply.body["first_command_ms"], 30);
  }
  assert.equal((await ask("POST", "/v1/vms?ready=soon", { json: { name: "c" } })).status, 400);
});

test("list filters by name, label selector and state", async () => {
  const { ask } = await createTestApi();
  await ask("POST", "/v1/vms", { json: { name: "a", labels: { app: "web", tier: "1" } } });
  await ask("POST", "/v1/vms", { json: { name: "b", labels: { app: "db" } } });
  await ask("POST", "/v1/vms/b/stop");
  const names = async (query: string): Promise<string[]> =>
    ((await ask("GET", `/v1/vms?${query}`)).body["items"] as { name: string }[]).map((v) => v.name);
  assert.deepEqual(await names(""), ["a", "b"]);
  assert.deepEqual(await names("name=b"), ["b"]);
  assert.deepEqual(await names(`label=${encodeURIComponent("app=web,tier")}`), ["a"]);
  assert.deepEqual(await names(`label=${encodeURIComponent("app!=web,!tier")}`), ["b"]);
  assert.deepEqual(await names("state=stopped"), ["b"]);
});

test("patch changes name and labels and removes what is null", async () => {
  const { ask } = await createTestApi();
  await ask("POST", "/v1/vms", { json: { name: "a", labels: { x: "1", y: "2" }, ttl_seconds: 60 } });
  const reply = await ask("PATCH", "/v1/vms/a", { json: { name: "b", labels: { x: null, z: "3" }, ttl_seconds: null } });
  assert.deepEqual([reply.body["name"], reply.body["labels"], reply.body["expires_at"]], ["b", { y: "2", z: "3" }, undefined]);
  assert.equal((await ask("GET", "/v1/vms/a")).status, 404);
});

test("the life of a VM through its actions", async () => {
  const { ask } = await createTestApi();
  await ask("POST", "/v1/vms", { json: { name: "a" } });
  const act = async (verb: string, json?: unknown): Promise<unknown> =>
    (await ask("POST", `/v1/vms/a/${verb}`, json === undefined ? {} : { json })).body["state"];
  assert.equal(await act("pause"), "paused");
  assert.equal(await act("resume"), "running");
  assert.equal(await act("stop", { force: true }), "stopped");
  assert.equal((await ask("POST", "/v1/vms/a/pause")).body["code"], "VM_NOT_RUNNING");
  assert.equal(await act("start"), "running");
  assert.equal(await act("restart", { timeout_seconds: 1 }), "running");
  const gone = await ask("DELETE", "/v1/vms/a");
  assert.deepEqual([gone.status, gone.text], [204, ""]);
  assert.equal((await ask("DELETE", "/v1/vms/a")).status, 404);
});

test("wait: at once, when it happens, 204 for gone, and a timeout", async () => {
  const { ask, platform, clock } = await createTestApi();
  await ask("POST", "/v1/vms", { json: { name: "a" } });
  assert.equal((await ask("GET", "/v1/vms/a/wait?for=ready,stopped")).body["state"], "running");
  const later = ask("GET", "/v1/vms/a/wait?for=stopped&timeout_seconds=10");
  await settle();
  await platform.vms.stop("a", {}, { signal: new AbortController().signal });
  assert.equal((await later).body["state"], "stopped");
  const late = ask("GET", "/v1/vms/a/wait?for=running&timeout_seconds=0.5");
  await settle();
  await clock.advance(500);
  const timedOut = await late;
  assert.deepEqual([timedOut.status, timedOut.body["code"]], [504, "WAIT_TIMEOUT"]);
  const gone = ask("GET", "/v1/vms/a/wait?for=gone");
  await settle();
  await ask("DELETE", "/v1/vms/a");
  assert.equal((await gone).status, 204);
});

test("a TTL deletes the VM when its time has come", async () => {
  const { ask, clock } = await createTestApi();
  const made = await ask("POST", "/v1/vms", { json: { name: "a", ttl_seconds: 5 } });
  assert.equal(made.body["ttl_remaining_seconds"], 5);
  await clock.advance(4999);
  assert.equal((await ask("GET", "/v1/vms/a")).status, 200);
  await clock.advance(1);
  assert.equal((await ask("GET", "/v1/vms/a")).status, 404);
});

test("logs are the console's last lines, as text", async () => {
  const { ask, platform } = await createTestApi();
  await ask("POST", "/v1/vms", { json: { name: "a" } });
  platform.print("a", "one\ntwo\n");
  const reply = await ask("GET", "/v1/vms/a/logs?lines=2");
  assert.equal(reply.status, 200);
  assert.equal(reply.headers["content-type"], "text/plain; charset=utf-8");
  assert.equal(reply.text, "one\ntwo\n");
  assert.equal((await ask("GET", "/v1/vms/a/logs?lines=0")).text, "");
  assert.equal((await ask("GET", "/v1/vms/none/logs")).status, 404);
});

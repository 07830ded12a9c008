import { strict as assert } from "node:assert";
import { test } from "node:test";
import { createTestApi, type TestApi } from "../testing/test-api.ts";

async function createVmApi(): Promise<TestApi> {
  const rig = await createTestApi();
  await rig.ask("POST", "/v1/vms", { json: { name: "a" } });
  return rig;
}

test("the one-shot call runs a string by the shell and a list as it is", async () => {
  const { ask } = await createVmApi();
  const shell = await ask("POST", "/v1/vms/a/agent", { json: { command: "echo hi; echo oops >&2; exit 3" } });
  assert.deepEqual([shell.body["stdout"], shell.body["stderr"], shell.body["exit"]], ["hi\n", "oops\n", { code: 3, timed_out: false }]);
  const list = await ask("POST", "/v1/vms/a/agent", { json: { command: ["cat"], stdin: "typed" } });
  assert.equal(list.body["stdout"], "typed");
  const big = await ask("POST", "/v1/vms/a/agent", { json: { command: ["seq", "300000"] } });
  assert.deepEqual([big.body["stdout_truncated"], String(big.body["stdout"]).length], [true, 1_048_576]);
});

test("ping tells the agent's version", async () => {
  const { ask } = await createVmApi();
  assert.deepEqual((await ask("POST", "/v1/vms/a/agent/ping")).body, { rtt_ms: 0.5, version: "0.0.0-fake" });
});

test("an exec is made, listed, signalled and forgotten", async () => {
  const { ask } = await createVmApi();
  const made = await ask("POST", "/v1/vms/a/execs", { json: { command: ["sleep", "1000"] } });
  assert.equal(made.status, 201);
  const id = String(made.body["id"]);
  assert.equal(made.headers["location"], `/v1/vms/a/execs/${id}`);
  assert.equal(((await ask("GET", "/v1/vms/a/execs")).body["items"] as unknown[]).length, 1);
  assert.equal((await ask("POST", `/v1/vms/a/execs/${id}/signal`, { json: { signal: "SIGTERM" } })).status, 204);
  assert.deepEqual((await ask("GET", `/v1/vms/a/execs/${id}`)).body["exit"], { signal: "SIGTERM", timed_out: false });
  assert.equal((await ask("DELETE", `/v1/vms/a/execs/${id}`)).status, 204);
  assert.equal((await ask("GET", `/v1/vms/a/execs/${id}`)).body["code"], "EXEC_NOT_FOUND");
});

test("bad execs: no command, an empty one, an unknown program, a bad signal, a bad terminal", async () => {
  const { ask } = await createVmApi();
  assert.equal((await ask("POST", "/v1/vms/a/execs", { json: {} })).status, 400);
  assert.equal((await ask("POST", "/v1/vms/a/execs", { json: { command: [] } })).status, 400);
  assert.equal((await ask("POST", "/v1/vms/a/execs", { json: { command: ["nothing-such"] } })).body["code"], "EXEC_START_FAILED");
  assert.equal((await ask("POST", "/v1/vms/a/execs", { json: { command: ["true"], tty: { rows: 0, cols: 80 } } })).status, 400);
  assert.equal((await ask("POST", "/v1/vms/a/execs/x/signal", { json: { signal: "rm -rf" } })).status, 400);
});

test("attach without an upgrade says so", async () => {
  const { ask } = await createVmApi();
  const reply = await ask("GET", "/v1/vms/a/execs/x/attach");
  assert.equal(reply.status, 400);
  assert.match(String(reply.body["message"]), /WebSocket/);
});

test("a file goes in, is looked at, and comes out whole or in part", async () => {
  const { ask } = await createVmApi();
  const content = Buffer.from(Array.from({ length: 300_000 }, (_, i) => i % 251));
  const put = await ask("PUT", "/v1/vms/a/files?path=/tmp/data&mode=0640&uid=5&gid=6", {
    payload: content,
    headers: { "content-type": "application/x-anything" },
  });
  assert.equal(put.status, 200);
  assert.deepEqual([put.body["size"], put.body["mode"], put.body["uid"], put.body["gid"]], [300_000, 0o640, 5, 6]);
  const part = await ask("GET", "/v1/vms/a/files?path=/tmp/data&offset=251&length=4");
  assert.deepEqual([...Buffer.from(part.text, "latin1")], [0, 1, 2, 3]);
  assert.equal((JSON.parse(String(part.headers["x-fluxvm-file-stat"])) as { size: number }).size, 300_000);
  const decimal = await ask("PUT", "/v1/vms/a/files?path=/tmp/d2&mode=493", { payload: "x" });
  assert.equal(decimal.body["mode"], 0o755);
});

test("an empty file needs no body, and a path beyond ASCII survives the header", async () => {
  const { ask } = await createVmApi();
  const put = await ask("PUT", `/v1/vms/a/files?path=${encodeURIComponent("/tmp/ünï 😀")}`);
  assert.deepEqual([put.status, put.body["size"]], [200, 0]);
  const got = await ask("GET", `/v1/vms/a/files?path=${encodeURIComponent("/tmp/ünï 😀")}`);
  assert.equal((JSON.parse(String(got.headers["x-fluxvm-file-stat"])) as { path: string }).path, "/tmp/ünï 😀");
  assert.equal(got.text, "");
});

test("directories are made, listed, renamed and removed", async () => {
  const { ask } = await createVmApi();
  assert.equal((await ask("POST", "/v1/vms/a/files/mkdir", { json: { path: "/tmp/x/y" } })).status, 404);
  assert.equal((await ask("POST", "/v1/vms/a/files/mkdir", { json: { path: "/tmp/x/y", parents: true, mode: 0o700 } })).status, 204);
  assert.equal((await ask("POST", "/v1/vms/a/files/mkdir", { json: { path: "/tmp/x" } })).body["code"], "GUEST_FILE_EXISTS");
  assert.equal((await ask("PUT", "/v1/vms/a/files?path=/tmp/n/o/f&parents=true", { payload: "1" })).status, 200);
  assert.equal((await ask("POST", "/v1/vms/a/files/rename", { json: { from: "/tmp/x", to: "/tmp/z" } })).status, 204);
  const items = (await ask("GET", "/v1/vms/a/files/list?path=/tmp")).body["items"] as { path: string }[];
  assert.deepEqual(
    items.map((f) => f.path),
    ["/tmp/n", "/tmp/z"],
  );
  assert.equal((await ask("GET", "/v1/vms/a/files/stat?path=/tmp/z/y")).body["type"], "directory");
  assert.equal((await ask("DELETE", "/v1/vms/a/files?path=/tmp/n")).body["code"], "GUEST_FILE_INVALID");
  assert.equal((await ask("DELETE", "/v1/vms/a/files?path=/tmp/n&recursive=true")).status, 204);
});

test("bad paths and attributes are refused before the guest is asked", async () => {
  const { ask } = await createVmApi();
  for (const url of [
    "/v1/vms/a/files",
    "/v1/vms/a/files?path=etc",
    "/v1/vms/a/files?path=/x&offset=-1",
    "/v1/vms/a/files?path=/x&length=abc",
    "/v1/vms/a/files/watch?path=",
  ]) {
    assert.equal((await ask("GET", url)).status, 400, url);
  }
  for (const mode of ["9999", "0999", "rwx", "-1", "077777"]) {
    assert.equal((await ask("PUT", `/v1/vms/a/files?path=/tmp/x&mode=${mode}`, { payload: "x" })).status, 400, mode);
  }
});

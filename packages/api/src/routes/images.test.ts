import { strict as assert } from "node:assert";
import { test } from "node:test";
import { createTestApi } from "../testing/test-api.ts";

test("an image import is accepted, tells of progress and ends ready", async () => {
  const { ask, clock } = await createTestApi();
  const name = "registry.example/team/app:1.2";
  const accepted = await ask("POST", "/v1/images", { json: { source: "docker://registry.example/team/app:1.2", name } });
  assert.equal(accepted.status, 202);
  assert.equal(accepted.headers["location"], `/v1/images/${String(accepted.body["id"])}`);
  assert.deepEqual([accepted.body["state"], (accepted.body["progress"] as { phase: string }).phase], ["importing", "fetching"]);
  const url = `/v1/images/${encodeURIComponent(name)}`;
  const waiting = ask("GET", `${url}/wait`);
  await clock.advance(1);
  assert.equal((await waiting).body["state"], "ready");
  const got = await ask("GET", url);
  assert.match(String(got.body["digest"]), /^sha256:/);
  assert.equal((await ask("GET", `/v1/images/${encodeURIComponent(String(got.body["digest"]))}`)).body["id"], got.body["id"]);
});

test("a failed import says why, a waiting one can time out, and a used image stays", async () => {
  const { ask, clock, platform } = await createTestApi();
  await ask("POST", "/v1/images", { json: { source: "oci:/fail", name: "bad" } });
  const late = ask("GET", "/v1/images/bad/wait?timeout_seconds=0");
  await clock.advance(0);
  assert.ok([200, 504].includes((await late).status));
  await clock.advance(1);
  const failed = await ask("GET", "/v1/images/bad");
  assert.deepEqual([failed.body["state"], (failed.body["error"] as { code: string }).code], ["failed", "IMAGE_SOURCE_UNREACHABLE"]);
  platform.addImage("good");
  await ask("POST", "/v1/vms", { json: { name: "a", image: "good" } });
  assert.equal((await ask("DELETE", "/v1/images/good")).body["code"], "IMAGE_IN_USE");
  await ask("DELETE", "/v1/vms/a");
  assert.equal((await ask("DELETE", "/v1/images/good")).status, 204);
});

test("bad requests: no source, a bad digest, a name with a path out, an unencoded name", async () => {
  const { ask } = await createTestApi();
  for (const json of [
    {},
    { source: "" },
    { source: "x", sha256: "abc" },
    { source: "x", name: "../x" },
    { source: "x", size_gib: 0 },
    { source: 5 },
  ]) {
    assert.equal((await ask("POST", "/v1/images", { json })).status, 400, JSON.stringify(json));
  }
  assert.equal((await ask("GET", "/v1/images/a/b")).status, 404);
});

test("kernels: the first is the default", async () => {
  const { ask, clock } = await createTestApi();
  const accepted = await ask("POST", "/v1/kernels", { json: { source: "debian:bookworm" } });
  assert.equal(accepted.status, 202);
  const waiting = ask("GET", `/v1/kernels/${String(accepted.body["id"])}/wait`);
  await clock.advance(1);
  assert.deepEqual([(await waiting).body["state"], (await waiting).body["is_default"]], ["ready", true]);
  assert.equal(((await ask("GET", "/v1/kernels")).body["items"] as unknown[]).length, 1);
  assert.equal((await ask("DELETE", `/v1/kernels/${String(accepted.body["id"])}`)).status, 204);
});

test("probes: alive, ready and not, version, report", async () => {
  const { ask, platform } = await createTestApi();
  assert.deepEqual((await ask("GET", "/healthz")).body, { ok: true });
  assert.equal((await ask("GET", "/readyz")).status, 200);
  platform.setReady(false);
  const notReady = await ask("GET", "/readyz");
  assert.equal(notReady.status, 503);
  assert.equal(notReady.body["ok"], false);
  assert.equal((await ask("GET", "/v1/version")).body["api"], "v1");
  assert.equal(((await ask("GET", "/v1/host/report?refresh=true")).body["capabilities"] as unknown[]).length, 3);
});

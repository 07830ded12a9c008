import { strict as assert } from "node:assert";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import { createTokenAuthenticator, requireTrustedSite } from "./auth.ts";
import { createTestApi, TOKEN } from "./testing/test-api.ts";

test("over TCP every route but the public ones demands the token", async () => {
  const { ask, document } = await createTestApi();
  const open = new Set(["/healthz", "/readyz", "/v1/openapi.json"]);
  for (const [path, item] of Object.entries(document.paths)) {
    for (const method of Object.keys(item)) {
      const url = path.replace(/\{[a-z]+\}/g, "x");
      const verb = method.toUpperCase() as "GET";
      const missing = await ask(verb, url, { token: "" });
      if (open.has(path)) {
        assert.equal(missing.status, 200, path);
        continue;
      }
      assert.equal(missing.status, 401, `${method} ${path}`);
      assert.equal(missing.body["code"], "TOKEN_MISSING");
      assert.match(String(missing.headers["www-authenticate"]), /^Bearer/);
      const wrong = await ask(verb, url, { token: "other" });
      assert.equal(wrong.body["code"], "TOKEN_INVALID");
    }
  }
  assert.equal((await ask("GET", "/nowhere", { token: "" })).status, 401);
});

test("authentication comes before the body is read or the query is judged", async () => {
  const { ask } = await createTestApi();
  const reply = await ask("POST", "/v1/vms?nonsense=%ZZ", { token: "", payload: "{", headers: { "content-type": "application/json" } });
  assert.equal(reply.status, 401);
});

test("no form of a wrong token is taken, and it is never logged", async () => {
  const { ask, lines } = await createTestApi();
  for (const authorization of [
    "",
    "Bearer",
    "Bearer ",
    TOKEN,
    `Basic ${TOKEN}`,
    `Bearer ${TOKEN}x`,
    `Bearer ${TOKEN.slice(1)}`,
    `Bearer ${TOKEN} ${TOKEN}`,
    `Bearer ${"a".repeat(5000)}`,
  ]) {
    const reply = await ask("GET", "/v1/version", { token: "", headers: { authorization } });
    assert.equal(reply.status, 401, authorization);
  }
  assert.equal((await ask("GET", "/v1/version", { token: "", headers: { authorization: `bearer ${TOKEN}` } })).status, 200);
  assert.doesNotMatch(JSON.stringify(lines), new RegExp(TOKEN));
});

test("the Unix socket needs no token", () => {
  const auth = createTokenAuthenticator({ token: TOKEN });
  assert.deepEqual(auth.authenticate({ listener: "unix", authorization: undefined }), { name: "local" });
  assert.throws(
    () => auth.authenticate({ listener: "tcp", authorization: undefined }),
    (e) => isPlatformError(e, "TOKEN_MISSING"),
  );
});

test("hosts: addresses, localhost and configured names pass, others do not", () => {
  for (const host of ["127.0.0.1", "127.0.0.1:7788", "[::1]:7788", "localhost:7788", "LOCALHOST", "10.1.2.3:80", "Vm-Host.example:7788"]) {
    assert.doesNotThrow(() => requireTrustedSite({ host, origin: undefined }, ["vm-host.example"]), host);
  }
  for (const host of [
    undefined,
    "",
    "evil.example",
    "evil.example:7788",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "localhost:7788:1",
    "[::1",
    "a b",
    "vm-host.example.evil",
  ]) {
    assert.throws(
      () => requireTrustedSite({ host, origin: undefined }, ["vm-host.example"]),
      (e) => isPlatformError(e, "ORIGIN_DENIED"),
      String(host),
    );
  }
});

test("origins: only the daemon's own", () => {
  const host = "localhost:7788";
  assert.doesNotThrow(() => requireTrustedSite({ host, origin: "http://localhost:7788" }, []));
  for (const origin of ["null", "http://evil.example", "http://localhost:8080", "http://127.0.0.1:7788", "", "file://"]) {
    assert.throws(
      () => requireTrustedSite({ host, origin }, []),
      (e) => isPlatformError(e, "ORIGIN_DENIED"),
      origin,
    );
  }
});

test("a rebinding page is refused even on public routes and with the token", async () => {
  const { ask } = await createTestApi();
  for (const url of ["/healthz", "/v1/vms"]) {
    const reply = await ask("GET", url, { headers: { host: "evil.example" } });
    assert.equal(reply.status, 403, url);
    assert.equal(reply.body["code"], "ORIGIN_DENIED");
  }
  const origin = await ask("POST", "/v1/vms", { json: { name: "a" }, headers: { origin: "http://evil.example" } });
  assert.equal(origin.status, 403);
});

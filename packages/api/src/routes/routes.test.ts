/** Every route: its success, and that it passes on each class of error the platform can throw as the table says. */
import { strict as assert } from "node:assert";
import { test } from "node:test";
import { ERROR_CATALOGUE, ERROR_CLASSES, PlatformError, type ErrorClass, type ErrorCode } from "@fluxvm/core";
import type { FakeOperation } from "../testing/fake-platform.ts";
import { createTestApi, type Question } from "../testing/test-api.ts";

interface RouteCase {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  readonly url: string;
  readonly question?: Question;
  readonly operation: FakeOperation;
}

const image = encodeURIComponent("registry.example/a:1");
const ROUTES: readonly RouteCase[] = [
  { method: "POST", url: "/v1/vms", question: { json: { name: "new" } }, operation: "vms.create" },
  { method: "GET", url: "/v1/vms", operation: "vms.list" },
  { method: "GET", url: "/v1/vms/a", operation: "vms.get" },
  { method: "PATCH", url: "/v1/vms/a", question: { json: {} }, operation: "vms.patch" },
  { method: "DELETE", url: "/v1/vms/a", operation: "vms.delete" },
  { method: "POST", url: "/v1/vms/a/start", operation: "vms.start" },
  { method: "POST", url: "/v1/vms/a/stop", operation: "vms.stop" },
  { method: "POST", url: "/v1/vms/a/restart", operation: "vms.restart" },
  { method: "POST", url: "/v1/vms/a/pause", operation: "vms.pause" },
  { method: "POST", url: "/v1/vms/a/resume", operation: "vms.resume" },
  { method: "GET", url: "/v1/vms/a/wait?for=running", operation: "vms.wait" },
  { method: "GET", url: "/v1/vms/a/logs", operation: "vms.logs" },
  { method: "POST", url: "/v1/vms/a/agent", question: { json: { command: "true" } }, operation: "guests.run" },
  { method: "POST", url: "/v1/vms/a/agent/ping", operation: "guests.ping" },
  { method: "POST", url: "/v1/vms/a/execs", question: { json: { command: ["true"] } }, operation: "guests.createExec" },
  { method: "GET", url: "/v1/vms/a/execs", operation: "guests.listExecs" },
  { method: "GET", url: "/v1/vms/a/execs/workload", operation: "guests.getExec" },
  { method: "DELETE", url: "/v1/vms/a/execs/workload", operation: "guests.removeExec" },
  { method: "POST", url: "/v1/vms/a/execs/workload/signal", question: { json: { signal: "TERM" } }, operation: "guests.signalExec" },
  { method: "GET", url: "/v1/vms/a/files?path=/etc/hostname", operation: "guests.readFile" },
  { method: "PUT", url: "/v1/vms/a/files?path=/tmp/x", question: { payload: "x" }, operation: "guests.writeFile" },
  { method: "GET", url: "/v1/vms/a/files/stat?path=/etc", operation: "guests.statFile" },
  { method: "GET", url: "/v1/vms/a/files/list?path=/etc", operation: "guests.listFiles" },
  { method: "POST", url: "/v1/vms/a/files/mkdir", question: { json: { path: "/tmp/d" } }, operation: "guests.makeDirectory" },
  {
    method: "POST",
    url: "/v1/vms/a/files/rename",
    question: { json: { from: "/etc/hostname", to: "/tmp/h" } },
    operation: "guests.renameFile",
  },
  { method: "DELETE", url: "/v1/vms/a/files?path=/etc/hostname", operation: "guests.removeFile" },
  { method: "GET", url: "/v1/vms/a/files/watch?path=/etc", operation: "guests.watchFiles" },
  { method: "POST", url: "/v1/images", question: { json: { source: "oci:/x" } }, operation: "images.create" },
  { method: "GET", url: "/v1/images", operation: "images.list" },
  { method: "GET", url: `/v1/images/${image}`, operation: "images.get" },
  { method: "GET", url: `/v1/images/${image}/wait`, operation: "images.wait" },
  { method: "DELETE", url: `/v1/images/${image}`, operation: "images.delete" },
  { method: "POST", url: "/v1/kernels", question: { json: { source: "debian:bookworm" } }, operation: "kernels.create" },
  { method: "GET", url: "/v1/kernels", operation: "kernels.list" },
  { method: "GET", url: "/v1/kernels/default", operation: "kernels.get" },
  { method: "GET", url: "/v1/kernels/default/wait", operation: "kernels.wait" },
  { method: "DELETE", url: "/v1/kernels/default", operation: "kernels.delete" },
  { method: "GET", url: "/v1/host/report", operation: "host.report" },
];

/** Any code of the class stands for all: what a route answers depends on the class alone. */
function codeOf(errorClass: ErrorClass): ErrorCode | undefined {
  return (Object.keys(ERROR_CATALOGUE) as ErrorCode[]).find(
    (code) => ERROR_CATALOGUE[code].class === errorClass && !["PAYLOAD_TOO_LARGE", "REQUEST_TIMEOUT"].includes(code),
  );
}

test("every route of the document is in this list", async () => {
  const { document } = await createTestApi();
  const elsewhere = new Set([
    "get /healthz",
    "get /readyz",
    "get /metrics",
    "get /v1/openapi.json",
    "get /v1/version",
    "get /v1/vms/{vm}/execs/{exec}/attach",
  ]);
  const documented = Object.entries(document.paths).flatMap(([path, item]) => Object.keys(item).map((method) => `${method} ${path}`));
  const listed = ROUTES.map(
    (r) =>
      `${r.method.toLowerCase()} ${(r.url.split("?")[0] ?? "").replace("/vms/a", "/vms/{vm}").replace("/workload", "/{exec}").replace(image, "{image}").replace("/kernels/default", "/kernels/{kernel}")}`,
  );
  assert.deepEqual(documented.filter((d) => !elsewhere.has(d)).toSorted(), listed.toSorted());
});

for (const { method, url, question = {}, operation } of ROUTES) {
  test(`${method} ${url}: each error class has its status`, async () => {
    const { ask, platform, document } = await createTestApi();
    platform.addImage("registry.example/a:1", ["sleep", "1000"]);
    platform.addKernel("k");
    if (operation !== "vms.create") await ask("POST", "/v1/vms", { json: { name: "a", image: "registry.example/a:1" } });
    for (const [errorClass, { http }] of Object.entries(ERROR_CLASSES) as [ErrorClass, { http: number }][]) {
      const code = codeOf(errorClass);
      const operationEntry = Object.entries(document.paths).find(([path]) =>
        new RegExp(`^${path.replace(/\{[a-z]+\}/g, "[^/]+")}$`).test(url.split("?")[0] ?? ""),
      );
      const isDeclared = operationEntry?.[1][method.toLowerCase()]?.responses[String(http)] !== undefined;
      if (code === undefined || !isDeclared) continue; // a class this route's operation does not throw
      platform.failNext(operation, new PlatformError(code, `planned ${code}`));
      const reply = await ask(method, url, question);
      assert.equal(reply.status, http, `${code}: ${reply.text}`);
      assert.deepEqual(
        [reply.body["code"], reply.body["class"], reply.body["message"]],
        [code, errorClass, errorClass === "internal" ? reply.body["message"] : `planned ${code}`],
      );
      assert.equal(reply.body["requestId"], reply.headers["x-request-id"]);
    }
  });
}

for (const { method, url, question = {}, operation } of ROUTES) {
  if (
    [
      "vms.list",
      "vms.get",
      "vms.logs",
      "guests.watchFiles",
      "guests.readFile",
      "guests.writeFile",
      "images.list",
      "images.get",
      "kernels.list",
      "kernels.get",
    ].includes(operation)
  )
    continue; // quick, or streams
  test(`${method} ${url}: a hanging platform is answered in time`, async () => {
    const { ask, platform, clock } = await createTestApi();
    const hung = platform.hangNext(operation);
    const pending = ask(method, url, question);
    await hung.started;
    await clock.advance(200_000);
    assert.equal((await pending).status, 504);
    await hung.aborted;
  });
}

import { strict as assert } from "node:assert";
import { test } from "node:test";
import * as contracts from "@fluxvm/contracts";
import { ERROR_CLASSES } from "@fluxvm/core";
import { Validator } from "@seriousme/openapi-schema-validator";
import { buildOpenApiDocument } from "./document.ts";
import { createTestApi, type OpenApiDocument, type OpenApiOperation } from "./testing/test-api.ts";

const document = (await buildOpenApiDocument()) as unknown as OpenApiDocument; // what this file is about to check

function listOperations(): { readonly path: string; readonly method: string; readonly operation: OpenApiOperation }[] {
  return Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({ path, method, operation })),
  );
}

async function validate(candidate: object): Promise<{ readonly valid: boolean; readonly errors?: unknown }> {
  const copy = JSON.parse(JSON.stringify(candidate)) as Record<string, unknown>; // as a client reads it, and free to be changed
  return await new Validator().validate(copy);
}

test("it is valid by the official JSON Schema of OpenAPI 3.1, and what is not does not pass", async () => {
  const result = await validate(document);
  assert.ok(result.valid, JSON.stringify(result.errors, undefined, 1));
  for (const broken of [
    { ...document, info: { title: "no version" } },
    { ...document, paths: { "/v1/vms": { get: { responses: { abc: { description: "no status" } } } } } },
    { ...document, components: { schemas: { Vm: { type: "objekt" } } } },
  ])
    assert.equal((await validate(broken)).valid, false, JSON.stringify(broken).slice(0, 200));
});

test("the head of the document is OpenAPI 3.1", () => {
  assert.equal(document.openapi, "3.1.0");
  assert.equal(typeof document.info["title"], "string");
  assert.equal(typeof document.info["version"], "string");
  assert.deepEqual(
    Object.keys(document).filter((k) => !["openapi", "info", "servers", "tags", "components", "security", "paths"].includes(k)),
    [],
  );
});

test("every operation is named once, tagged with a declared tag and described", () => {
  const ids = listOperations().map(({ operation }) => operation.operationId);
  assert.equal(new Set(ids).size, ids.length);
  const tags = new Set(document.tags.map((t) => t.name));
  for (const { path, method, operation } of listOperations()) {
    assert.match(operation.operationId, /^[a-z][A-Za-z]+$/, `${method} ${path}`);
    assert.ok(operation.tags.length === 1 && tags.has(operation.tags[0] ?? ""), path);
    assert.ok(["get", "post", "put", "patch", "delete"].includes(method));
  }
});

test("path parameters are exactly those of the template, and parameter names are unique", () => {
  for (const { path, method, operation } of listOperations()) {
    const inTemplate = [...path.matchAll(/\{([a-z]+)\}/g)].map((m) => m[1] ?? "").toSorted();
    const parameters = operation.parameters ?? [];
    const declared = parameters.filter((p) => p.in === "path");
    assert.deepEqual(declared.map((p) => p.name).toSorted(), inTemplate, `${method} ${path}`);
    assert.ok(declared.every((p) => p.required === true));
    const keys = parameters.map((p) => `${p.in}:${p.name}`);
    assert.equal(new Set(keys).size, keys.length);
    assert.ok(parameters.every((p) => ["path", "query", "header"].includes(p.in) && typeof p.schema === "object"));
  }
});

test("every reference resolves and every component is used", () => {
  const used = new Set<string>();
  const visit = (node: unknown): void => {
    if (typeof node !== "object" || node === null) return;
    if ("$ref" in node) {
      const match = /^#\/components\/schemas\/([A-Za-z]+)$/.exec(String(node.$ref));
      assert.ok(match?.[1] !== undefined && match[1] in document.components.schemas, String(node.$ref));
      used.add(match[1]);
      assert.equal(Object.keys(node).length, 1);
    }
    for (const value of Object.values(node)) visit(value);
  };
  visit(document);
  assert.deepEqual([...used].toSorted(), Object.keys(document.components.schemas).toSorted());
  assert.doesNotMatch(JSON.stringify(document), /"\$id"|x-fluxvm-schema/);
});

test("schemas are JSON Schema: known keywords, known types, patterns that compile", () => {
  const keywords = new Set(
    "type properties patternProperties additionalProperties required minProperties maxProperties items minItems maxItems minLength maxLength pattern format minimum maximum exclusiveMinimum exclusiveMaximum const enum anyOf default description $ref".split(
      " ",
    ),
  );
  const visit = (schema: unknown, where: string): void => {
    assert.ok(typeof schema === "object" && schema !== null, where);
    for (const [keyword, value] of Object.entries(schema)) {
      assert.ok(keywords.has(keyword), `${where}: ${keyword}`);
      if (keyword === "type")
        assert.ok(["object", "array", "string", "integer", "number", "boolean", "null"].includes(String(value)), where);
      if (keyword === "pattern") assert.doesNotThrow(() => new RegExp(String(value), "u"), where);
      if (keyword === "properties" || keyword === "patternProperties")
        for (const [k, v] of Object.entries(value as object)) visit(v, `${where}.${k}`);
      if (keyword === "items" || (keyword === "additionalProperties" && typeof value === "object")) visit(value, `${where}[]`);
      if (keyword === "anyOf") for (const v of value as unknown[]) visit(v, where);
      if (keyword === "required")
        assert.ok(Array.isArray(value) && value.every((v) => "properties" in schema && String(v) in (schema.properties as object)), where);
    }
  };
  for (const [name, schema] of Object.entries(document.components.schemas)) visit(schema, name);
  for (const { path, method, operation } of listOperations()) {
    for (const p of operation.parameters ?? []) visit(p.schema, `${method} ${path} ${p.name}`);
    for (const media of Object.values(operation.requestBody?.content ?? {})) visit(media.schema, `${method} ${path} body`);
    for (const r of Object.values(operation.responses))
      for (const media of Object.values(r.content ?? {})) visit(media.schema, `${method} ${path} reply`);
  }
});

test("every operation lists a success, and errors as the one body under statuses of the table", () => {
  const statuses = new Set([...Object.values(ERROR_CLASSES).map((c) => c.http as number), 405, 408, 413, 415]);
  for (const { path, method, operation } of listOperations()) {
    const codes = Object.keys(operation.responses).map(Number);
    assert.ok(
      codes.some((c) => c < 400),
      `${method} ${path}`,
    );
    for (const code of codes.filter((c) => c >= 400)) {
      if (path === "/readyz" && code === 503) continue; // answers its checks
      assert.ok(statuses.has(code), `${method} ${path} ${code}`);
      assert.deepEqual(operation.responses[code]?.content, { "application/json": { schema: { $ref: "#/components/schemas/Error" } } });
    }
    assert.ok(Object.values(operation.responses).every((r) => r.description.length > 0));
  }
});

test("every request and view schema of the contracts is in the document", () => {
  const ids = Object.entries(contracts)
    .filter(([name]) => name.endsWith("Schema") && !["ConfigSchema", "FileEventSchema"].includes(name))
    .map(([, schema]) => (schema as { $id?: string }).$id)
    .filter((id) => id !== undefined);
  for (const id of ids) assert.ok(id in document.components.schemas, id);
});

test("key patterns and constants survive the conversion", () => {
  const vm = JSON.stringify(document.components.schemas["CreateVmRequest"]);
  assert.match(vm, /patternProperties/);
  assert.match(vm, /"const":"user"/);
});

test("the daemon serves the same document", async () => {
  const { ask } = await createTestApi();
  const reply = await ask("GET", "/v1/openapi.json", { token: "" });
  assert.deepEqual(JSON.parse(reply.text), JSON.parse(JSON.stringify(document)));
});

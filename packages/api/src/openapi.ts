/** The OpenAPI document: made from the route schemas, with every schema that has an `$id` moved into the components. */
import type { FastifyDynamicSwaggerOptions } from "@fastify/swagger";
import type { FastifySchema } from "fastify";
import { describeStatus } from "./schemas.ts";

export const OPENAPI_OPTIONS: FastifyDynamicSwaggerOptions = {
  openapi: {
    openapi: "3.1.0",
    info: {
      title: "FluxVM",
      version: "1",
      description:
        "Virtual machines on one Linux host. Over the Unix socket no token is needed; over TCP it always is. Every error has the body `Error`, " +
        "and every reply an `X-Request-Id`, which is the caller's own where it sent one.",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "http://127.0.0.1:7788" }],
    tags: [
      { name: "vms", description: "Virtual machines" },
      { name: "execs", description: "Commands in a guest" },
      { name: "files", description: "Files of a guest" },
      { name: "images", description: "Disk images" },
      { name: "kernels", description: "Guest kernels" },
      { name: "host", description: "The daemon and its host" },
    ],
    components: { securitySchemes: { bearer: { type: "http", scheme: "bearer", description: "The token in the daemon's token file" } } },
    security: [{ bearer: [] }],
  },
  convertConstToEnum: false,
  transform: ({ schema, url }) => ({ schema: markNamed(schema) as FastifySchema, url }), // a schema stays one
  transformObject: (input) => {
    // Dynamic mode over `openapi` options always hands over an OpenAPI document, which is plain JSON data.
    const document = ("openapiObject" in input ? input.openapiObject : {}) as Json;
    return finishDocument(document);
  },
};

type Json = Record<string, unknown>;

/** Named schemas as they are written: the plugin would rewrite what OpenAPI 3.1 can express, such as key patterns. */
const named = new Map<string, unknown>();
const MARK = "x-fluxvm-schema";

/** Puts a mark in place of every schema with an `$id`. */
function markNamed(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(markNamed);
  if (typeof node !== "object" || node === null) return node;
  const { $id, ...rest } = node as Json; // JSON data: an object that is no array
  const marked = Object.fromEntries(Object.entries(rest).map(([key, value]) => [key, markNamed(value)]));
  if (typeof $id !== "string") return marked;
  named.set($id, marked);
  return { type: "object", [MARK]: $id };
}

function finishDocument(document: Json): Json {
  const schemas: Json = {};
  const resolve = (node: unknown): unknown => {
    if (Array.isArray(node)) return node.map(resolve);
    if (typeof node !== "object" || node === null) return node;
    const name = (node as Json)[MARK]; // as above
    if (typeof name !== "string") return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, resolve(value)]));
    schemas[name] ??= resolve(named.get(name));
    return { $ref: `#/components/schemas/${name}` };
  };
  const paths = resolve(document["paths"]) as Record<string, Record<string, Json>>; // path items by method
  for (const item of Object.values(paths)) for (const operation of Object.values(item)) finishOperation(operation, schemas);
  const components = document["components"] as Json; // declared in the options
  const sorted = Object.fromEntries(Object.entries(schemas).toSorted(([a], [b]) => a.localeCompare(b)));
  return { ...document, paths, components: { ...components, schemas: sorted } };
}

/** A body whose fields are all optional may be left out as a whole; an upload's body is bytes; replies get words. */
function finishOperation(operation: Json, schemas: Json): void {
  const body = operation["requestBody"] as { required?: boolean; content?: Record<string, { schema?: Json }> } | undefined; // as the format has it
  const schema = body?.content?.["application/json"]?.schema;
  if (body !== undefined && schema !== undefined) {
    const name = typeof schema["$ref"] === "string" ? schema["$ref"].split("/").at(-1) : undefined;
    const target = (name === undefined ? schema : schemas[name]) as { required?: readonly string[] } | undefined; // a schema either way
    body.required = (target?.required ?? []).length > 0;
  }
  if (operation["operationId"] === "writeFile") {
    operation["requestBody"] = {
      required: true,
      description: "The file's bytes",
      content: { "*/*": { schema: { type: "string", format: "binary" } } },
    };
  }
  const responses = operation["responses"] as Record<string, { description: string }>; // always there
  for (const [status, response] of Object.entries(responses)) {
    if (response.description === "Default Response") response.description = describeStatus(Number(status));
  }
}

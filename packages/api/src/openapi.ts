/** The OpenAPI document: made from the route schemas, with every schema that has an `$id` moved into the components. */
import type { FastifyDynamicSwaggerOptions } from "@fastify/swagger";

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
  transformObject: (input) => {
    // Dynamic mode over `openapi` options always hands over an OpenAPI document, which is plain JSON data.
    const document = ("openapiObject" in input ? input.openapiObject : {}) as Record<string, unknown>;
    return hoistSchemas(structuredClone(document));
  },
};

type Json = Record<string, unknown>;

function hoistSchemas(document: Json): Json {
  const schemas: Record<string, unknown> = {};
  const visit = (node: unknown): unknown => {
    if (Array.isArray(node)) return node.map(visit);
    if (typeof node !== "object" || node === null) return node;
    const { $id, ...rest } = node as Json; // JSON data: an object that is no array
    const visited = Object.fromEntries(Object.entries(rest).map(([key, value]) => [key, visit(value)]));
    if (typeof $id !== "string") return visited;
    schemas[$id] = visited;
    return { $ref: `#/components/schemas/${$id}` };
  };
  const paths = visit(document["paths"]) as Record<string, Record<string, unknown>>; // path items by method
  for (const item of Object.values(paths)) {
    for (const operation of Object.values(item)) finishOperation(operation as Json, schemas);
  }
  const components = document["components"] as Json; // declared in the options
  return { ...document, paths, components: { ...components, schemas } };
}

/** A body whose fields are all optional may be left out as a whole. */
function finishOperation(operation: Json, schemas: Readonly<Record<string, unknown>>): void {
  const body = operation["requestBody"] as { required?: boolean; content?: Record<string, { schema?: Json }> } | undefined; // as the format has it
  const schema = body?.content?.["application/json"]?.schema;
  if (body === undefined || schema === undefined) return;
  const name = typeof schema["$ref"] === "string" ? schema["$ref"].split("/").at(-1) : undefined;
  const target = (name === undefined ? schema : schemas[name]) as { required?: readonly string[] } | undefined; // a schema either way
  body.required = (target?.required ?? []).length > 0;
}

/** The API over a fake platform, asked without sockets; every reply is held against the OpenAPI document. */
import { strict as assert } from "node:assert";
import { createSeededRandom, type Clock } from "@fluxvm/core";
import { ManualClock } from "@fluxvm/core/testing";
import { findSchemaProblems } from "@fluxvm/contracts";
import { MetricsRegistry } from "@fluxvm/telemetry";
import { createMemoryLogger, type LogLine } from "@fluxvm/telemetry/testing";
import { createApi } from "../api.ts";
import { createTokenAuthenticator } from "../auth.ts";
import type { Api, ApiLimits } from "../context.ts";
import { createFakePlatform, type FakePlatform } from "./fake-platform.ts";

export const TOKEN = "test-token";

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | number | undefined>>;
  /** The body as text. */
  readonly text: string;
  /** The body as JSON; `undefined` when it is none. */
  readonly body: Readonly<Record<string, unknown>>;
}

export interface Question {
  readonly json?: unknown;
  readonly payload?: string | Uint8Array;
  readonly headers?: Readonly<Record<string, string>>;
  /** Default: the right one. Empty: none. */
  readonly token?: string;
}

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "HEAD" | "OPTIONS";

export interface TestApi {
  readonly api: Api;
  readonly platform: FakePlatform;
  readonly clock: ManualClock;
  readonly lines: readonly LogLine[];
  readonly document: OpenApiDocument;
  ask(method: Method, url: string, question?: Question): Promise<Answer>;
}

export async function createTestApi(limits: Partial<ApiLimits> = {}): Promise<TestApi> {
  const clock = new ManualClock();
  const platform = createFakePlatform({ clock });
  const { logger, lines } = createMemoryLogger();
  const api = await createApi({
    platform,
    logger,
    clock: clock satisfies Clock,
    random: createSeededRandom(1),
    auth: createTokenAuthenticator({ token: TOKEN }),
    limits: { maxBodyBytes: 65_536, bodyTimeoutMs: 1000, requestTimeoutMs: 5000, readyTimeoutMs: 3000, ...limits },
    metrics: new MetricsRegistry(),
    allowedHosts: ["vm-host.example"],
  });
  const document = api.swagger() as unknown as OpenApiDocument; // openapi.test.ts proves its shape
  const ask = async (method: Method, url: string, question: Question = {}): Promise<Answer> => {
    const { json, payload, token = TOKEN } = question;
    const reply = await api.inject({
      method,
      url,
      headers: {
        host: "127.0.0.1:7788",
        ...(token === "" ? {} : { authorization: `Bearer ${token}` }),
        ...(json === undefined ? {} : { "content-type": "application/json" }),
        ...question.headers,
      },
      ...(json === undefined ? {} : { payload: JSON.stringify(json) }),
      ...(payload === undefined ? {} : { payload: typeof payload === "string" ? payload : Buffer.from(payload) }),
    });
    const isJson = String(reply.headers["content-type"]).startsWith("application/json");
    const body = (isJson ? JSON.parse(reply.payload) : {}) as Readonly<Record<string, unknown>>; // every JSON reply of ours is an object
    checkReply(document, { method, url, status: reply.statusCode, body, isJson });
    return { status: reply.statusCode, headers: reply.headers, text: reply.payload, body };
  };
  return { api, platform, clock, lines, document, ask };
}

export interface OpenApiOperation {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly parameters?: readonly { readonly name: string; readonly in: string; readonly required?: boolean; readonly schema: object }[];
  readonly requestBody?: { readonly required: boolean; readonly content: Readonly<Record<string, { readonly schema: object }>> };
  readonly responses: Readonly<
    Record<string, { readonly description: string; readonly content?: Readonly<Record<string, { readonly schema: object }>> }>
  >;
}

export interface OpenApiDocument {
  readonly openapi: string;
  readonly info: Readonly<Record<string, unknown>>;
  readonly paths: Readonly<Record<string, Readonly<Record<string, OpenApiOperation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, object>>; readonly securitySchemes: object };
  readonly tags: readonly { readonly name: string }[];
}

interface Reply {
  readonly method: string;
  readonly url: string;
  readonly status: number;
  readonly body: unknown;
  readonly isJson: boolean;
}

/** The document must know the status, and the body must be what it says. */
function checkReply(document: OpenApiDocument, reply: Reply): void {
  const path = reply.url.split("?", 1)[0] ?? "";
  const template = Object.keys(document.paths)
    .filter((t) => new RegExp(`^${t.replace(/\{[a-z]+\}/g, "[^/]+")}$`).test(path))
    .toSorted((a, b) => a.split("{").length - b.split("{").length)[0];
  const operation = template === undefined ? undefined : document.paths[template]?.[reply.method.toLowerCase()];
  if (operation === undefined) return;
  const declared = operation.responses[String(reply.status)];
  assert.ok(declared !== undefined, `${reply.method} ${template} answered ${reply.status}, which the document does not list`);
  const schema = declared.content?.["application/json"]?.schema;
  if (!reply.isJson) return;
  assert.ok(schema !== undefined, `${reply.method} ${template} ${reply.status} answers JSON that the document does not describe`);
  assert.deepEqual(findSchemaProblems(inlineReferences(document, schema) as object, reply.body), []); // a schema stays an object
}

export function inlineReferences(document: OpenApiDocument, node: unknown): unknown {
  if (Array.isArray(node)) return node.map((n) => inlineReferences(document, n));
  if (typeof node !== "object" || node === null) return node;
  if ("$ref" in node) {
    const name = String(node.$ref).split("/").at(-1) ?? "";
    return inlineReferences(document, document.components.schemas[name]);
  }
  return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, inlineReferences(document, value)]));
}

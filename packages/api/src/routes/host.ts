/** What the daemon says of itself and its host. */
import { HostReportSchema, ReadinessSchema, VersionSchema } from "@fluxvm/contracts";
import { Type } from "typebox";
import { callPlatform, type Api, type ApiContext } from "../context.ts";
import { replies } from "../schemas.ts";

const tags = ["host"];
const NoQuery = Type.Object({}, { additionalProperties: false });

export function registerHostRoutes(api: Api, context: ApiContext): void {
  const { host } = context.platform;
  api.get(
    "/v1/host/report",
    {
      schema: {
        operationId: "getHostReport",
        tags,
        summary: "What this host can do, found by trying",
        querystring: Type.Object(
          {
            refresh: Type.Optional(Type.Boolean({ default: false, description: "Try again instead of answering from this boot's cache" })),
          },
          { additionalProperties: false },
        ),
        response: replies({ 200: HostReportSchema }),
      },
    },
    async (request, reply) => {
      const refresh = request.query.refresh ?? false;
      return await callPlatform(context, { request, reply, what: "probe host" }, async (signal) => await host.report({ signal, refresh }));
    },
  );
  api.get(
    "/v1/version",
    {
      schema: {
        operationId: "getVersion",
        tags,
        summary: "Versions and identity of the daemon",
        querystring: NoQuery,
        response: replies({ 200: VersionSchema }),
      },
    },
    async () => ({ ...host.version() }),
  );
  registerProbes(api, context);
  registerDocuments(api, context);
}

function registerProbes(api: Api, context: ApiContext): void {
  const security: { [name: string]: string[] }[] = [];
  const config = { isPublic: true, isQuiet: true };
  api.get(
    "/healthz",
    {
      config,
      schema: {
        operationId: "getHealth",
        tags,
        security,
        summary: "Whether the daemon answers at all",
        response: replies({ 200: Type.Object({ ok: Type.Boolean() }) }),
      },
    },
    async () => ({ ok: true }),
  );
  api.get(
    "/readyz",
    {
      config,
      schema: {
        operationId: "getReadiness",
        tags,
        security,
        summary: "Whether the daemon can serve; 503 and the checks that fail when it cannot",
        response: { ...replies({ 200: ReadinessSchema }), 503: ReadinessSchema },
      },
    },
    async (_request, reply) => {
      const readiness = await context.platform.host.readiness();
      return await reply.code(readiness.ok ? 200 : 503).send(readiness);
    },
  );
}

function registerDocuments(api: Api, context: ApiContext): void {
  api.get(
    "/metrics",
    {
      config: { isQuiet: true },
      schema: {
        operationId: "getMetrics",
        tags,
        summary: "Metrics in the Prometheus text format",
        response: replies({ 200: { description: "Prometheus text", content: { "text/plain": { schema: Type.String() } } } }),
      },
    },
    async (_request, reply) => {
      reply.header("content-type", context.registry.contentType).serializer(String);
      return await context.registry.render();
    },
  );
  let text: string | undefined;
  api.get(
    "/v1/openapi.json",
    {
      config: { isPublic: true },
      schema: {
        operationId: "getOpenApi",
        tags,
        security: [],
        summary: "This document",
        response: replies({ 200: { description: "OpenAPI 3.1", content: { "application/json": { schema: Type.Object({}) } } } }),
      },
    },
    async (_request, reply) => {
      text ??= JSON.stringify(api.swagger());
      reply.header("content-type", "application/json; charset=utf-8").serializer(String);
      return text;
    },
  );
}

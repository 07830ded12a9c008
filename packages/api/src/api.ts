/**
 * `createApi`: the REST API over a `Platform`, as a Fastify instance that does not listen.
 *
 * Order of what happens to a request: id, stopping?, trusted site (TCP), token (TCP), route, path and query, body,
 * handler, one log line. Every failure, whoever finds it, leaves as the one error body.
 */
import swagger from "@fastify/swagger";
import type { TypeBoxTypeProvider } from "@fastify/type-provider-typebox";
import websocket from "@fastify/websocket";
import { newId, PlatformError, type Clock, type Random } from "@fluxvm/core";
import type { Logger, MetricsRegistry } from "@fluxvm/telemetry";
import fastify, { type FastifyReply, type FastifyRequest } from "fastify";
import { requireTrustedSite, type Authenticator } from "./auth.ts";
import type { Api, ApiContext, ApiLimits } from "./context.ts";
import { sendError } from "./errors.ts";
import { findListenerKind } from "./http-server.ts";
import { readJsonBody } from "./json-body.ts";
import { METRICS } from "./metrics.ts";
import { OPENAPI_OPTIONS } from "./openapi.ts";
import type { Platform } from "./platform.ts";
import { parseQuery, requireReadableQuery } from "./query.ts";
import { registerExecRoutes } from "./routes/execs.ts";
import { registerFileRoutes } from "./routes/files.ts";
import { registerHostRoutes } from "./routes/host.ts";
import { registerImageRoutes, registerKernelRoutes } from "./routes/images.ts";
import { registerVmRoutes } from "./routes/vms.ts";
import { compileSchema } from "./validation.ts";

export interface ApiOptions {
  readonly platform: Platform;
  readonly logger: Logger;
  readonly clock: Clock;
  readonly random: Random;
  readonly auth: Authenticator;
  readonly limits: ApiLimits;
  readonly metrics: MetricsRegistry;
  /** Host names, besides localhost and IP addresses, that clients of the TCP listener may use. */
  readonly allowedHosts: readonly string[];
}

const REQUEST_ID = /^[A-Za-z0-9._-]{1,64}$/;
const MAX_FRAME_BYTES = 1_048_576 + 9;

export async function createApi(options: ApiOptions): Promise<Api> {
  const stopping = new AbortController();
  const metrics = options.metrics.create(METRICS);
  const { platform, logger, clock, limits } = options;
  const context: ApiContext = { platform, logger, clock, limits, registry: options.metrics, metrics, stopping: stopping.signal };
  const api: Api = fastify({
    logger: false,
    genReqId: (raw) => acceptRequestId(raw.headers["x-request-id"]) ?? newId("req", options.random),
    bodyLimit: limits.maxBodyBytes,
    return503OnClosing: false,
    exposeHeadRoutes: false,
    routerOptions: { maxParamLength: 1600, querystringParser: parseQuery },
    frameworkErrors: (error, request, reply) => {
      reply.header("x-request-id", request.id);
      // The reply is on its way; what could fail in sending it is the connection, which nobody can be told of.
      void sendError(logger, error, { request, reply });
    },
  }).withTypeProvider<TypeBoxTypeProvider>();

  api.setValidatorCompiler(compileSchema);
  api.setSerializerCompiler(() => JSON.stringify);
  api.setErrorHandler(async (error, request, reply) => await sendError(logger, error, { request, reply }));
  api.decorateRequest("identity", undefined);
  api.decorateRequest("errorCode", undefined);
  api.decorateRequest("callerSignal", undefined);
  api.decorateRequest("isLogged", false);
  api.removeAllContentTypeParsers();
  api.addContentTypeParser(
    "application/json",
    async (_request: FastifyRequest, payload: FastifyRequest["raw"]) => await readJsonBody(payload, limits, clock),
  );
  api.addHook("preClose", async () => stopping.abort(new PlatformError("SHUTTING_DOWN", "The daemon is stopping")));
  // Before our hooks: an upgrade that one of them refuses is known as such by then, and its socket closed after the reply.
  await api.register(websocket, {
    options: { maxPayload: MAX_FRAME_BYTES, perMessageDeflate: false },
    errorHandler: (error, socket, request) => {
      logger.debug({ err: error, requestId: request.id }, "websocket failed");
      socket.terminate();
    },
  });
  addRequestHooks(api, options, context);
  answerUnknownRoutes(api);

  await api.register(swagger, OPENAPI_OPTIONS);
  registerVmRoutes(api, context);
  registerExecRoutes(api, context);
  registerFileRoutes(api, context);
  registerImageRoutes(api, context);
  registerKernelRoutes(api, context);
  registerHostRoutes(api, context);
  await api.ready();
  return api;
}

function acceptRequestId(sent: string | string[] | undefined): string | undefined {
  return typeof sent === "string" && REQUEST_ID.test(sent) ? sent : undefined;
}

function addRequestHooks(api: Api, options: ApiOptions, context: ApiContext): void {
  const { metrics, stopping } = context;
  api.addHook("onRequest", async (request, reply) => {
    reply.header("x-request-id", request.id);
    if (stopping.aborted) throw new PlatformError("SHUTTING_DOWN", "The daemon is stopping", { retryAfterMs: 2000 });
    const listener = findListenerKind(request.raw.socket);
    try {
      if (listener === "tcp") requireTrustedSite({ host: request.headers.host, origin: request.headers.origin }, options.allowedHosts);
      if (request.routeOptions.config.isPublic !== true) {
        request.identity = options.auth.authenticate({ listener, authorization: request.headers.authorization });
      }
    } catch (error) {
      const code = error instanceof PlatformError ? error.code : "";
      metrics.denied.inc({ reason: code === "ORIGIN_DENIED" ? "origin" : code === "TOKEN_MISSING" ? "token_missing" : "token_invalid" });
      throw error;
    }
    requireReadableQuery(request.query);
  });
  // `onResponse` does not come for a caller that went away, `close` not for a request without a socket: one of both does.
  api.addHook("onRequest", async (request, reply) => {
    reply.raw.once("close", () => setImmediate(() => logRequest(options.logger, context, { request, reply }))); // once the error, if any, has its status
  });
  api.addHook("onResponse", async (request, reply) => logRequest(options.logger, context, { request, reply }));
}

function logRequest(
  logger: Logger,
  { metrics }: ApiContext,
  { request, reply }: { readonly request: FastifyRequest; readonly reply: FastifyReply },
): void {
  if (request.isLogged) return;
  request.isLogged = true;
  const route = request.routeOptions.url ?? "(unknown)";
  const { vm } = (request.params ?? {}) as { vm?: string }; // path parameters are text
  const durationMs = Math.round(reply.elapsedTime * 10) / 10;
  metrics.requests.inc({ route, method: request.method, status: String(reply.statusCode) });
  metrics.duration.observe({ route }, reply.elapsedTime / 1000);
  const fields = {
    requestId: request.id,
    method: request.method,
    route,
    statusCode: reply.statusCode,
    durationMs,
    ...(vm === undefined ? {} : { vm: vm.slice(0, 80) }),
    ...(request.identity === undefined ? {} : { identity: request.identity.name }),
    ...(request.errorCode === undefined ? {} : { code: request.errorCode }),
  };
  if (request.routeOptions.config.isQuiet === true) logger.debug(fields, "request");
  else logger.info(fields, "request");
}

/** 405 with `Allow` where the path exists under another method, else 404. */
function answerUnknownRoutes(api: Api): void {
  const routes: { readonly method: string; readonly pattern: RegExp }[] = [];
  api.addHook("onRoute", (route) => {
    const pattern = new RegExp(`^${route.url.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/:[a-z]+/g, "[^/]+")}$`);
    for (const method of [route.method].flat()) routes.push({ method, pattern });
  });
  api.setNotFoundHandler(async (request, reply) => {
    const path = request.url.split("?", 1)[0] ?? "";
    const allowed = routes.filter((r) => r.pattern.test(path)).map((r) => r.method);
    if (allowed.length === 0) throw new PlatformError("ROUTE_UNKNOWN", `There is no route ${request.method} ${path.slice(0, 200)}`);
    reply.header("allow", [...new Set(allowed)].join(", "));
    throw new PlatformError(
      "METHOD_NOT_ALLOWED",
      `Method ${request.method} is not allowed here; try ${[...new Set(allowed)].join(" or ")}`,
    );
  });
}

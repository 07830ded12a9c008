/**
 * Anything thrown while a request is served, as the one error body.
 *
 * Statuses follow the error table. Faults of the transport itself have HTTP statuses of their own (405, 408, 413, 415):
 * `TRANSPORT_STATUS` lists them, the body's `class` stays the table's.
 */
import { ERROR_CLASSES, PlatformError, toErrorBody, toPlatformError, type ErrorClass, type ErrorCode } from "@fluxvm/core";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Logger } from "@fluxvm/telemetry";
import type { SchemaProblem } from "@fluxvm/contracts";

export const TRANSPORT_STATUS: Partial<Record<ErrorCode, number>> = {
  METHOD_NOT_ALLOWED: 405,
  REQUEST_TIMEOUT: 408,
  PAYLOAD_TOO_LARGE: 413,
  MEDIA_TYPE_UNSUPPORTED: 415,
};

/** After these the rest of the request's body is not read, so the connection cannot be kept. */
const CLOSES_CONNECTION: ReadonlySet<ErrorCode> = new Set<ErrorCode>(["REQUEST_TIMEOUT", "PAYLOAD_TOO_LARGE", "SHUTTING_DOWN"]);

export function statusOf(error: PlatformError): number {
  return TRANSPORT_STATUS[error.code] ?? ERROR_CLASSES[error.class].http;
}

/** A `PlatformError` of anything the framework or a handler throws. */
export function translateError(thrown: unknown): PlatformError {
  if (thrown instanceof PlatformError) return thrown;
  const code: unknown = thrown instanceof Error && "code" in thrown ? thrown.code : undefined;
  switch (code) {
    case "FST_ERR_CTP_INVALID_MEDIA_TYPE":
      return new PlatformError("MEDIA_TYPE_UNSUPPORTED", "Unsupported content type: send application/json", { cause: thrown });
    case "FST_ERR_CTP_BODY_TOO_LARGE":
      return new PlatformError("PAYLOAD_TOO_LARGE", "The request body is too large", { cause: thrown });
    case "FST_ERR_BAD_URL":
      return new PlatformError("REQUEST_INVALID", "Malformed URL: its percent-encoding is wrong", { cause: thrown });
    case "FST_ERR_MAX_PARAM_LENGTH":
      return new PlatformError("REQUEST_INVALID", "A path segment is too long", { cause: thrown });
    default:
      return isClientFault(thrown)
        ? new PlatformError("REQUEST_INVALID", `Malformed request: ${thrown.message}`, { cause: thrown })
        : toPlatformError(thrown);
  }
}

/** A fault the framework itself blames on the client. */
function isClientFault(thrown: unknown): thrown is Error {
  if (!(thrown instanceof Error) || !("code" in thrown) || !String(thrown.code).startsWith("FST_")) return false;
  return "statusCode" in thrown && typeof thrown.statusCode === "number" && thrown.statusCode >= 400 && thrown.statusCode < 500;
}

/** Answers with the error body, and logs here, once, what the caller is not told. */
export async function sendError(
  logger: Logger,
  thrown: unknown,
  exchange: { readonly request: FastifyRequest; readonly reply: FastifyReply },
): Promise<FastifyReply> {
  const { request, reply } = exchange;
  const error = translateError(thrown);
  const status = statusOf(error);
  request.errorCode = error.code;
  if (status === 500) logger.error({ err: error, requestId: request.id }, "request failed");
  else logger.debug({ err: error, requestId: request.id }, "request refused");
  if (error.retryAfterMs !== undefined) reply.header("retry-after", String(Math.max(1, Math.ceil(error.retryAfterMs / 1000))));
  if (status === 401) reply.header("www-authenticate", 'Bearer realm="fluxvm"');
  if (CLOSES_CONNECTION.has(error.code)) reply.header("connection", "close");
  return await reply.code(status).type("application/json; charset=utf-8").serializer(JSON.stringify).send(toErrorBody(error, request.id));
}

/** The error of a request part that its schema refuses. The most specific code wins; `fields` lists everything. */
export function problemsToError(
  part: "body" | "query" | "path",
  problems: readonly SchemaProblem[],
  unserved: readonly string[] = [],
): PlatformError {
  const noun = part === "body" ? "field" : part === "query" ? "query parameter" : "path parameter";
  const fields = problems.map((p) => ({ path: p.path === "" ? part : p.path, message: p.message }));
  const refused = problems.find((p) => p.kind === "unknown" && unserved.includes(p.path));
  const unknown = problems.find((p) => p.kind === "unknown");
  const more = problems.length > 1 ? ` (and ${problems.length - 1} more)` : "";
  if (refused !== undefined) {
    const message = `Unsupported ${noun} ${JSON.stringify(refused.path)}: this version does not serve it yet${more}`;
    return new PlatformError("FIELD_UNSUPPORTED", message, {
      fields: fields.map((f) => (unserved.includes(f.path) ? { path: f.path, message: "is not served yet" } : f)),
    });
  }
  if (unknown !== undefined) {
    const hint = unknown.suggestion === undefined ? "" : `, did you mean ${JSON.stringify(unknown.suggestion)}`;
    return new PlatformError("FIELD_UNKNOWN", `Unknown ${noun} ${JSON.stringify(unknown.path)}${hint}${more}`, { fields });
  }
  const first = fields[0];
  return new PlatformError("REQUEST_INVALID", `Invalid ${noun} ${JSON.stringify(first?.path)}: ${first?.message ?? "is wrong"}${more}`, {
    fields,
  });
}

export type { ErrorClass };

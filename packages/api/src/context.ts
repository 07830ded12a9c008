/** What every route is given, and how it calls the platform: with a signal that fires when the caller goes away or the time is over. */
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { TypeBoxTypeProvider } from "@fastify/type-provider-typebox";
import { PlatformError, withDeadline, type Clock } from "@fluxvm/core";
import type { Instruments, Logger, MetricsRegistry } from "@fluxvm/telemetry";
import type { FastifyBaseLogger, FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Identity } from "./auth.ts";
import type { METRICS } from "./metrics.ts";
import type { Platform } from "./platform.ts";

export type Api = FastifyInstance<Server, IncomingMessage, ServerResponse, FastifyBaseLogger, TypeBoxTypeProvider>;

export interface ApiLimits {
  /** Largest JSON body. */
  readonly maxBodyBytes: number;
  /** Time a JSON body may take to arrive. */
  readonly bodyTimeoutMs: number;
  /** Deadline of a call that does not stream, beyond any waiting the caller asked for. */
  readonly requestTimeoutMs: number;
  /** What `?ready=exec` may add to it. */
  readonly readyTimeoutMs: number;
}

export interface ApiContext {
  readonly platform: Platform;
  readonly logger: Logger;
  readonly clock: Clock;
  readonly limits: ApiLimits;
  readonly registry: MetricsRegistry;
  readonly metrics: Instruments<typeof METRICS>;
  /** Fires when the API stops: streams end then, whatever their clients do. */
  readonly stopping: AbortSignal;
}

declare module "fastify" {
  interface FastifyRequest {
    identity: Identity | undefined;
    /** Code of the error answered, for the request's log line. */
    errorCode: string | undefined;
    callerSignal: AbortSignal | undefined;
    isLogged: boolean;
  }
  interface FastifyContextConfig {
    /** Answered without a token. */
    readonly isPublic?: boolean;
    /** Logged at debug level: asked by machines every few seconds. */
    readonly isQuiet?: boolean;
  }
}

export interface Exchange {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
}

/** Fires with `REQUEST_CANCELLED` when the connection closes before the reply is out. */
export function getCallerSignal({ request, reply }: Exchange): AbortSignal {
  if (request.callerSignal !== undefined) return request.callerSignal;
  const controller = new AbortController();
  request.callerSignal = controller.signal;
  const gone = (): void => {
    if (!reply.raw.writableFinished) controller.abort(new PlatformError("REQUEST_CANCELLED", "The caller went away"));
  };
  if (reply.raw.destroyed) gone();
  else reply.raw.once("close", gone);
  return controller.signal;
}

export interface CallBudget {
  /** For the deadline's message: `Timed out after 120000 ms: start VM`. */
  readonly what: string;
  /** Waiting the caller asked for, on top of the request's deadline. */
  readonly extraMs?: number | undefined;
}

/** One platform call that does not stream. */
export async function callPlatform<T>(
  context: ApiContext,
  exchange: Exchange & CallBudget,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const timeoutMs = context.limits.requestTimeoutMs + (exchange.extraMs ?? 0);
  return await withDeadline({ clock: context.clock, timeoutMs, signal: getCallerSignal(exchange), what: exchange.what }, work);
}

/**
 * `PlatformError`: the only error that crosses a package boundary on purpose.
 *
 * `message` is for the person or program that asked and may be shown to anybody; `details` and `cause` are for the
 * log alone. Programmer errors are failed assertions (`assert.ts`) and are never wrapped into one of these.
 */
import { ERROR_CATALOGUE, ERROR_CLASSES, isErrorCode, type ErrorClass, type ErrorCode } from "./catalogue.ts";

/** One field of a request and what is wrong with it. `path` is dotted, for example `network.forwards.0.host_port`. */
export interface FieldProblem {
  readonly path: string;
  readonly message: string;
}

export interface PlatformErrorOptions {
  readonly cause?: unknown;
  /** For logs only: never sent to a caller. */
  readonly details?: Readonly<Record<string, unknown>>;
  readonly fields?: readonly FieldProblem[];
  /** For `throttled`, `unavailable` and `capacity_exhausted`: when a retry makes sense. */
  readonly retryAfterMs?: number;
}

export class PlatformError extends Error {
  override readonly name = "PlatformError";
  readonly code: ErrorCode;
  readonly details: Readonly<Record<string, unknown>>;
  readonly fields: readonly FieldProblem[];
  readonly retryAfterMs: number | undefined;

  constructor(code: ErrorCode, message: string, options: PlatformErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.details = options.details ?? {};
    this.fields = options.fields ?? [];
    this.retryAfterMs = options.retryAfterMs;
  }

  get class(): ErrorClass {
    return ERROR_CATALOGUE[this.code].class;
  }

  get httpStatus(): number {
    return ERROR_CLASSES[this.class].http;
  }

  get exitCode(): number {
    return ERROR_CLASSES[this.class].exit;
  }
}

export function isPlatformError(value: unknown, code?: ErrorCode): value is PlatformError {
  return value instanceof PlatformError && (code === undefined || value.code === code);
}

/** Builds an `invalid_argument` error for one field. */
export function invalidField(path: string, message: string): PlatformError {
  return new PlatformError("REQUEST_INVALID", `Invalid ${path}: ${message}`, { fields: [{ path, message }] });
}

/** Anything thrown, as a `PlatformError`: unchanged if it is one, `cancelled` for an abort, `deadline_exceeded` for a timed-out signal, else `internal`. */
export function toPlatformError(thrown: unknown): PlatformError {
  if (thrown instanceof PlatformError) return thrown;
  if (thrown instanceof Error && thrown.name === "AbortError") {
    return new PlatformError("REQUEST_CANCELLED", "The request was cancelled", { cause: thrown });
  }
  if (thrown instanceof Error && thrown.name === "TimeoutError") {
    return new PlatformError("DEADLINE_EXCEEDED", "The time given was over", { cause: thrown });
  }
  return new PlatformError("INTERNAL", "Internal error", { cause: thrown });
}

/** The JSON body of an error on the wire: no stack, no host path, no details. */
export interface ErrorBody {
  code: string;
  class: string;
  message: string;
  requestId?: string;
  fields?: { path: string; message: string }[];
}

export function toErrorBody(error: PlatformError, requestId?: string): ErrorBody {
  return {
    code: error.code,
    class: error.class,
    message: error.message,
    ...(requestId === undefined ? {} : { requestId }),
    ...(error.fields.length === 0 ? {} : { fields: error.fields.map((f) => ({ ...f })) }),
  };
}

/** Rebuilds the error a peer sent. An unknown code becomes `INTERNAL`, keeping the peer's message. */
export function fromErrorBody(body: ErrorBody, options: PlatformErrorOptions = {}): PlatformError {
  const code: ErrorCode = isErrorCode(body.code) ? body.code : "INTERNAL";
  return new PlatformError(code, body.message, { ...options, ...(body.fields === undefined ? {} : { fields: body.fields }) });
}

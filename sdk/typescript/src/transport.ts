/**
 * One daemon over HTTP/1.1: kept-alive connections to a Unix socket or an origin, JSON or streams in both directions.
 *
 * Every failure leaves as a `PlatformError`: the daemon's own (rebuilt from its body), `DAEMON_UNREACHABLE` when there
 * is no daemon or it went away, `REQUEST_CANCELLED` or the caller's reason when the caller's signal fired. Requests
 * have no time limit of their own: waits are long on purpose, so a caller bounds them with `signal`. Nothing is
 * retried here, because only the caller knows what may be repeated.
 */
import type { IncomingHttpHeaders } from "node:http";
import type { Readable } from "node:stream";
import { fromErrorBody, PlatformError, toPlatformError, type ErrorBody } from "@fluxvm/contracts";
import { Agent, request, type Dispatcher } from "undici";
import { parseServerAddress, type ServerAddress } from "./server-address.ts";

export interface TransportOptions {
  /** `unix:/path` or `http://host:port`. */
  readonly server: string;
  /** Bearer token; the Unix socket needs none. */
  readonly token?: string | undefined;
  /** Limit on the time to connect; default 5 s. */
  readonly connectTimeoutMs?: number | undefined;
  /** Sent as `User-Agent`. */
  readonly userAgent?: string | undefined;
}

export type Query = Readonly<Record<string, string | number | boolean | undefined>>;
export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

export interface RequestOptions {
  readonly query?: Query | undefined;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent as it is; excludes `json`. */
  readonly body?: Readable | Uint8Array | undefined;
  readonly accept?: string | undefined;
  /** A status outside 200 to 299 whose body is an answer too. */
  readonly acceptStatus?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface StreamReply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Readable;
}

/** An error body longer than this is not one of ours. */
const MAX_ERROR_BYTES = 1_048_576;

export class Transport {
  readonly address: ServerAddress;
  readonly dispatcher: Dispatcher;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #closing = new AbortController();

  constructor(options: TransportOptions) {
    this.address = parseServerAddress(options.server);
    this.#headers = {
      "user-agent": options.userAgent ?? "fluxvm-sdk-typescript",
      ...(options.token === undefined ? {} : { authorization: `Bearer ${options.token}` }),
    };
    const timeout = options.connectTimeoutMs ?? 5000;
    const connect = this.address.kind === "unix" ? { socketPath: this.address.socketPath, timeout } : { timeout };
    this.dispatcher = new Agent({ connect, headersTimeout: 0, bodyTimeout: 0, keepAliveTimeout: 30_000 });
  }

  /** Headers of a WebSocket handshake. */
  get handshakeHeaders(): Readonly<Record<string, string>> {
    return this.#headers;
  }

  url(path: string, query: Query = {}): string {
    return `${this.address.origin}${path}${formatQuery(query)}`;
  }

  /** Sends a request and reads the JSON of its reply. `T` is the route's documented reply; the daemon's own schemas enforce it. */
  async json<T>(method: Method, path: string, options: RequestOptions = {}): Promise<T> {
    const reply = await this.stream(method, path, { accept: "application/json", ...options });
    const text = await this.text(reply, options.signal);
    try {
      return JSON.parse(text) as T; // the daemon serialises replies by the schema of the route
    } catch (error) {
      throw notOurs(this.address, reply.status, error);
    }
  }

  /** Sends a request whose reply has no body worth reading. */
  async empty(method: Method, path: string, options: RequestOptions = {}): Promise<void> {
    const reply = await this.stream(method, path, options);
    await this.text(reply, options.signal);
  }

  /** The whole body of a reply. */
  async text(reply: StreamReply, signal?: AbortSignal): Promise<string> {
    try {
      return await readText(reply.body, Number.POSITIVE_INFINITY);
    } catch (error) {
      throw this.translate(error, signal);
    }
  }

  /** Sends a request and hands the reply's body over unread. The caller consumes or destroys it. */
  async stream(method: Method, path: string, options: RequestOptions = {}): Promise<StreamReply> {
    let reply: Dispatcher.ResponseData<unknown>;
    try {
      reply = await request(this.url(path, options.query), this.#requestOptions(method, options));
    } catch (error) {
      throw this.translate(error, options.signal);
    }
    if ((reply.statusCode >= 200 && reply.statusCode < 300) || reply.statusCode === options.acceptStatus) {
      return { status: reply.statusCode, headers: reply.headers, body: reply.body };
    }
    throw await this.#readError(reply, options.signal);
  }

  /** Fires with the reason when the client is closed: what lives longer than a request ends with it. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  async close(): Promise<void> {
    this.#closing.abort(new PlatformError("REQUEST_CANCELLED", "The client was closed"));
    await this.dispatcher.destroy();
  }

  #requestOptions(method: Method, options: RequestOptions): Parameters<typeof request>[1] {
    const isJson = options.json !== undefined;
    const contentType = isJson ? "application/json" : options.body === undefined ? undefined : "application/octet-stream";
    return {
      method,
      dispatcher: this.dispatcher,
      headers: {
        ...this.#headers,
        ...(options.accept === undefined ? {} : { accept: options.accept }),
        ...(contentType === undefined ? {} : { "content-type": contentType }),
      },
      body: isJson ? JSON.stringify(options.json) : (options.body ?? null),
      signal: options.signal ?? null,
    };
  }

  async #readError(reply: Dispatcher.ResponseData<unknown>, signal: AbortSignal | undefined): Promise<Error> {
    try {
      const body: unknown = JSON.parse(await readText(reply.body, MAX_ERROR_BYTES));
      if (!isErrorBody(body)) return notOurs(this.address, reply.statusCode);
      const retryAfterMs = parseRetryAfterMs(reply.headers["retry-after"]);
      return fromErrorBody(body, retryAfterMs === undefined ? {} : { retryAfterMs });
    } catch (error) {
      if (error instanceof SyntaxError) return notOurs(this.address, reply.statusCode, error);
      return this.translate(error, signal);
    }
  }

  /** Any error met while sending or while reading a streamed body, as callers of this class see errors. */
  translate(error: unknown, signal?: AbortSignal): Error {
    if (error instanceof PlatformError) return error;
    if (signal?.aborted === true) return toCallerError(signal.reason);
    const code = connectionCode(error);
    if (code !== undefined) return unreachable(this.address, code, error);
    return toPlatformError(error);
  }
}

/** The error of a daemon that is not there, with what to do about it. */
export function unreachable(address: ServerAddress, code: string, cause: unknown): PlatformError {
  return new PlatformError("DAEMON_UNREACHABLE", `Cannot reach the FluxVM daemon at ${address.shown}: ${explainCode(address, code)}`, {
    cause,
    details: { code },
    retryAfterMs: 1000,
  });
}

/** A caller's abort reason: its own error as it is, a plain abort as `REQUEST_CANCELLED`. */
export function toCallerError(reason: unknown): Error {
  if (reason instanceof Error && reason.name !== "AbortError" && reason.name !== "TimeoutError") return reason;
  return toPlatformError(reason);
}

function explainCode(address: ServerAddress, code: string): string {
  switch (code) {
    case "ENOENT":
      return "there is no such socket; is the daemon running? (`fluxctl serve`)";
    case "ECONNREFUSED":
      return "nothing listens there; is the daemon running? (`fluxctl serve`)";
    case "EACCES":
    case "EPERM":
      return "you may not open the socket; use an account of its group, or root";
    case "ENOTSOCK":
      return "the path is not a socket";
    case "UND_ERR_CONNECT_TIMEOUT":
      return "no answer in time; check the address and the network";
    case "ENOTFOUND":
    case "EAI_AGAIN":
      return "the host name is unknown; check the address";
    default:
      return `the connection broke (${code}); the daemon may have been stopped${address.kind === "unix" ? "" : ", or the address is not a daemon"}`;
  }
}

const CONNECTION_CODE = /^(E[A-Z]+|UND_ERR_(SOCKET|CONNECT_TIMEOUT|CLOSED|DESTROYED|INFO))$/;

/** The code of an error that means "no connection", from Node or undici, wherever in the chain it is. */
function connectionCode(error: unknown): string | undefined {
  let current = error;
  for (let depth = 0; depth < 5 && current instanceof Error; depth += 1) {
    const code = (current as { code?: unknown }).code; // system errors and undici's carry one
    if (typeof code === "string" && CONNECTION_CODE.test(code)) return code;
    current = current instanceof AggregateError ? (current.errors as unknown[])[0] /* typed any[] */ : current.cause;
  }
  return undefined;
}

function notOurs(address: ServerAddress, status: number, cause?: unknown): PlatformError {
  const message = `Unexpected answer (HTTP ${status}) from ${address.shown}: it may not be a FluxVM daemon`;
  return new PlatformError("DAEMON_PROTOCOL", message, { cause });
}

function isErrorBody(value: unknown): value is ErrorBody {
  if (typeof value !== "object" || value === null) return false;
  const { code, message } = value as Record<string, unknown>; // an object, checked above
  return typeof code === "string" && typeof message === "string";
}

function parseRetryAfterMs(value: string | string[] | undefined): number | undefined {
  const seconds = typeof value === "string" ? Number(value) : Number.NaN;
  return Number.isFinite(seconds) && seconds >= 0 ? Math.round(seconds * 1000) : undefined;
}

async function readText(body: AsyncIterable<unknown>, maxBytes: number): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of body) {
    const buffer = chunk as Buffer; // undici's bodies yield buffers
    size += buffer.length;
    if (size > maxBytes) throw new SyntaxError("reply too long");
    chunks.push(buffer);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function formatQuery(query: Query): string {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value !== undefined) params.set(key, String(value));
  const text = params.toString();
  return text === "" ? "" : `?${text}`;
}

/**
 * HTTP servers in front of one API: each listener has its own, so that a request is known to have come in over the
 * Unix socket or over TCP by the server that took it, never by anything the client sends.
 */
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { PlatformError, toErrorBody, type Clock } from "@fluxvm/core";
import type { ListenerKind } from "./auth.ts";
import type { Api } from "./context.ts";
import { statusOf } from "./errors.ts";

const kinds = new WeakMap<Duplex, ListenerKind>();
const connections = new WeakMap<Server, Set<Socket>>();

/** A socket that no server of ours tagged counts as TCP: the stricter of the two. */
export function findListenerKind(socket: Duplex): ListenerKind {
  return kinds.get(socket) ?? "tcp";
}

/** A server that feeds `api`, not listening yet. Call `await api.ready()` first. Its owner closes it. */
export function createApiServer(api: Api, kind: ListenerKind): Server {
  const server = createServer(
    { headersTimeout: 20_000, requestTimeout: 0, keepAliveTimeout: 75_000, maxHeaderSize: 32_768 },
    (request, response) => {
      api.routing(request, response);
    },
  );
  const sockets = new Set<Socket>();
  connections.set(server, sockets);
  server.on("connection", (socket: Socket) => {
    kinds.set(socket, kind);
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    socket.setNoDelay(true);
  });
  server.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    if (!api.server.emit("upgrade", request, socket, head)) socket.destroy(); // nobody takes upgrades while stopping
  });
  server.on("clientError", answerClientError);
  return server;
}

/**
 * Takes no more connections, waits until those that are open have ended, and cuts off the rest, WebSockets included,
 * when the time is over. Resolves when none is left; a server that never listened is fine.
 */
export async function closeApiServer(server: Server, options: { readonly clock: Clock; readonly budgetMs: number }): Promise<void> {
  if (!server.listening) return;
  const cancel = options.clock.schedule(options.budgetMs, () => {
    for (const socket of connections.get(server) ?? []) socket.destroy();
  });
  await new Promise<void>((resolve) => {
    server.close(() => resolve());
  });
  cancel();
}

/** Bytes that are not HTTP, headers too large or too slow: the framework never sees them. */
function answerClientError(error: Error & { code?: string }, socket: Duplex): void {
  if (error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy();
    return;
  }
  const failure = describeClientError(error.code);
  const status = error.code === "HPE_HEADER_OVERFLOW" ? 431 : statusOf(failure);
  const body = JSON.stringify(toErrorBody(failure));
  const head = `HTTP/1.1 ${status} Refused\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n`;
  socket.end(head + body, () => socket.destroy()); // ended alone, a client that never ends its side would hold it open
}

function describeClientError(code: string | undefined): PlatformError {
  switch (code) {
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new PlatformError("REQUEST_TIMEOUT", "The request did not arrive whole in time");
    case "HPE_HEADER_OVERFLOW":
      return new PlatformError("PAYLOAD_TOO_LARGE", "The request's headers are too large");
    default:
      return new PlatformError("REQUEST_INVALID", "Malformed HTTP request");
  }
}

/**
 * A daemon without machines, for tests of the SDK and of programs over it: the routes of the REST API over HTTP and
 * WebSocket on a Unix socket, with VMs, images, kernels, files and execs in memory. It can lose its connections, go
 * away and come back, as a killed and restarted daemon does.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { fromErrorBody, PlatformError, toPlatformError, type ErrorBody } from "@fluxvm/contracts";
import { WebSocketServer } from "ws";
import { FakeHost } from "./fake-host.ts";

export interface FakeDaemonOptions {
  /** A path of a Unix socket, or 0 for a free TCP port of loopback. */
  readonly listen: string | 0;
  /** Demanded as a bearer token when given. */
  readonly token?: string;
}

export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

const BASE = "http://daemon";

export class FakeDaemon {
  readonly host = new FakeHost();
  readonly seen: SeenRequest[] = [];
  readonly #options: FakeDaemonOptions;
  readonly #sockets = new Set<Socket>();
  readonly #upgraded = new Set<Socket>();
  readonly #webSockets = new WebSocketServer({ noServer: true });
  #server: Server | undefined;

  constructor(options: FakeDaemonOptions) {
    this.#options = options;
  }

  /** The address a client takes. */
  get address(): string {
    const address = this.#server?.address();
    if (typeof address === "object" && address !== null) return `http://127.0.0.1:${address.port}`;
    return `unix:${this.#options.listen}`;
  }

  async start(): Promise<void> {
    const server = createServer((request, response) => void this.#answer(request, response)); // answers its own errors
    server.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    });
    server.on("upgrade", (request, socket: Socket, head) => this.#upgrade(request, socket, head));
    server.listen(this.#options.listen === 0 ? { port: 0, host: "127.0.0.1" } : { path: this.#options.listen });
    await once(server, "listening");
    this.#server = server;
  }

  /** Breaks every attached exec's connection at once, without a closing handshake. */
  dropExecConnections(): void {
    for (const socket of this.#upgraded) socket.destroy();
  }

  /** Goes away as if killed; what the guests did stays. */
  async stop(): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    for (const socket of this.#sockets) socket.destroy();
    server.close();
    await once(server, "close");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      this.#authorise(request);
      const url = new URL(request.url ?? "/", BASE);
      const body = await readAll(request);
      const query = Object.fromEntries(url.searchParams);
      this.seen.push({ method: request.method ?? "", path: url.pathname, query, headers: request.headers, body: body.toString("utf8") });
      const reply = await this.host.handle({ method: request.method ?? "GET", path: url.pathname, query, body });
      response.writeHead(reply.status, reply.headers);
      if (reply.stream === undefined) response.end(reply.body);
      else {
        for await (const chunk of reply.stream) response.write(chunk);
        response.end();
      }
    } catch (error) {
      sendError(response, toPlatformError(error));
    }
  }

  #upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void {
    const url = new URL(request.url ?? "/", BASE);
    const match = /^\/v1\/vms\/([^/]+)\/execs\/([^/]+)\/attach$/.exec(url.pathname);
    try {
      this.#authorise(request);
      const exec = this.host.requireExec(decodeURIComponent(match?.[1] ?? ""), decodeURIComponent(match?.[2] ?? ""));
      const offset = (name: string): number => Number(url.searchParams.get(name) ?? 0);
      this.#webSockets.handleUpgrade(request, socket, head, (webSocket) => {
        this.#upgraded.add(socket);
        socket.on("close", () => this.#upgraded.delete(socket));
        exec.attach(webSocket, { stdout: offset("stdout_offset"), stderr: offset("stderr_offset") });
      });
    } catch {
      socket.end("HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n");
    }
  }

  #authorise(request: IncomingMessage): void {
    const { token } = this.#options;
    if (token === undefined || request.headers.authorization === `Bearer ${token}`) return;
    const missing = request.headers.authorization === undefined;
    throw new PlatformError(missing ? "TOKEN_MISSING" : "TOKEN_INVALID", missing ? "A token is needed" : "The token is not known");
  }
}

function sendError(response: ServerResponse, error: PlatformError): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const fields = error.fields.length === 0 ? {} : { fields: error.fields.map((field) => ({ ...field })) };
  const body: ErrorBody = { code: error.code, class: error.class, message: error.message, requestId: "req-test", ...fields };
  response.writeHead(fromErrorBody(body).httpStatus, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}

async function readAll(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer); // a request without an encoding yields buffers
  return Buffer.concat(chunks);
}

/** A daemon that is listening, for one test. */
export async function startFakeDaemon(options: FakeDaemonOptions): Promise<FakeDaemon> {
  const daemon = new FakeDaemon(options);
  await daemon.start();
  return daemon;
}

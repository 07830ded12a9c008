/**
 * One WebSocket of an attached exec, over the daemon's Unix socket or TCP. It knows frames, not offsets: sessions
 * (`exec-session.ts`) decide what to keep, drop and send again.
 *
 *   connecting ──open──► open ──close, error, end()──► closed     (`closed` settles once, never rejects)
 */
import { PlatformError, type ExecClientMessage, type ExecServerMessage } from "@fluxvm/contracts";
import { WebSocket, type MessageEvent } from "undici";
import type { Transport } from "../transport.ts";
import { decodeOutputFrame, encodeStdinFrame, parseServerMessage, type OutputFrame } from "./frames.ts";

export interface ExecConnectionHandlers {
  onMessage(message: ExecServerMessage): void;
  onOutput(frame: OutputFrame): void;
}

export interface ExecConnection {
  /** Resolves when the connection is gone, with what was wrong with it if something was. */
  readonly closed: Promise<PlatformError | undefined>;
  send(message: ExecClientMessage): void;
  sendStdin(offset: number, data: Uint8Array): void;
  /** Stops listening at once and closes. */
  end(): void;
}

export interface OpenExecConnection {
  readonly path: string;
  readonly stdoutOffset: number;
  readonly stderrOffset: number;
  readonly handlers: ExecConnectionHandlers;
  readonly timeoutMs: number;
}

/** @throws PlatformError `DAEMON_UNREACHABLE` when no WebSocket could be opened, whatever the cause. */
export async function openExecConnection(transport: Transport, options: OpenExecConnection): Promise<ExecConnection> {
  const query = { stdout_offset: options.stdoutOffset, stderr_offset: options.stderrOffset };
  const url = transport.url(options.path, query).replace(/^http/, "ws");
  const socket = new WebSocket(url, { dispatcher: transport.dispatcher, headers: { ...transport.handshakeHeaders } });
  socket.binaryType = "arraybuffer";
  const { promise: closed, resolve: setClosed } = Promise.withResolvers<PlatformError | undefined>();
  const listening = new AbortController();
  const end = (problem?: PlatformError): void => {
    if (listening.signal.aborted) return;
    listening.abort();
    socket.addEventListener("error", () => undefined); // an abandoned socket's troubles interest nobody
    if (socket.readyState <= socket.OPEN) socket.close();
    setClosed(problem);
  };
  const listen = { signal: listening.signal } as const;
  socket.addEventListener("message", (event) => dispatch(event, options.handlers, end), listen);
  socket.addEventListener("close", () => end(), listen);
  await waitForOpen(socket, { timeoutMs: options.timeoutMs, end });
  return {
    closed,
    end: () => end(),
    send: (message) => sendIfOpen(socket, JSON.stringify(message)),
    sendStdin: (offset, data) => sendIfOpen(socket, encodeStdinFrame(offset, data)),
  };
}

/** Bytes that cannot leave are not lost: the session sends them again after the next attach. */
function sendIfOpen(socket: WebSocket, data: string | Buffer): void {
  if (socket.readyState === socket.OPEN) socket.send(data);
}

function dispatch(event: MessageEvent, handlers: ExecConnectionHandlers, end: (problem: PlatformError) => void): void {
  try {
    const data: unknown = event.data;
    if (data instanceof ArrayBuffer) handlers.onOutput(decodeOutputFrame(data));
    if (typeof data !== "string") return;
    const message = parseServerMessage(data);
    if (message !== undefined) handlers.onMessage(message);
  } catch (error) {
    end(error instanceof PlatformError ? error : new PlatformError("INTERNAL", "Internal error", { cause: error }));
  }
}

async function waitForOpen(socket: WebSocket, options: { readonly timeoutMs: number; readonly end: () => void }): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const timer = setTimeout(() => resolve("no answer in time"), options.timeoutMs);
  socket.addEventListener("open", () => resolve("open"), { once: true });
  socket.addEventListener("error", (event) => resolve(event.message || "refused"), { once: true });
  socket.addEventListener("close", () => resolve("closed"), { once: true });
  const outcome = await promise;
  clearTimeout(timer);
  if (outcome === "open") return;
  options.end();
  throw new PlatformError("DAEMON_UNREACHABLE", `The daemon did not accept the exec's connection: ${outcome}`);
}

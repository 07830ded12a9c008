/**
 * A running command in a guest, attached. The connection under it may break any number of times (daemon killed,
 * restarted, network gone): the session attaches again at the bytes it has, and no byte of stdin, stdout or stderr is
 * repeated or lost.
 *
 *   connecting ──attached──► attached ──exit, all output here──► exited
 *       ▲                        │
 *       └──── broken: back off ◄─┘          any ──error, detach, budget spent──► failed / detached
 *
 * Invariants: `#received` is the end of what is queued or read, and where the next attach resumes. A chunk counts as
 * consumed when its reader asks for the next one; only consumed bytes are acknowledged, so a slow reader slows the
 * command in the guest and never fills memory. Input is held until the guest confirms it (`stdin-window.ts`).
 *
 * It does not collect the exec from the guest: that is `ExecClient.remove`.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { fromErrorBody, PlatformError, type ErrorClass, type ExecExit, type ExecServerMessage } from "@fluxvm/contracts";
import { toCallerError, type Transport } from "../transport.ts";
import { openExecConnection, type ExecConnection } from "./exec-connection.ts";
import type { OutputFrame, OutputStream } from "./frames.ts";
import { OutputQueue } from "./output-queue.ts";
import { StdinWindow } from "./stdin-window.ts";

export interface ExecOutputChunk {
  readonly stream: OutputStream;
  /** Number of the first byte of `data` in its stream. */
  readonly offset: number;
  readonly data: Uint8Array;
}

export interface AttachOptions {
  readonly signal?: AbortSignal | undefined;
  /** Where to begin, when output before it is known already; default 0. */
  readonly stdoutOffset?: number | undefined;
  readonly stderrOffset?: number | undefined;
  /** How long to try to attach again without any progress; default 60 s. */
  readonly reconnectMs?: number | undefined;
  /** Told when the connection broke and when it is back. */
  readonly onConnection?: ((state: "lost" | "attached") => void) | undefined;
}

const ACK_BYTES = 65_536;
const ACK_DELAY_MS = 50;
const DEFAULT_RECONNECT_MS = 60_000;
const HANDSHAKE_TIMEOUT_MS = 10_000;
/** A connection over which the daemon has not said that we are attached by then is given up. */
const ATTACH_TIMEOUT_MS = 30_000;
const MAX_BACKOFF_MS = 1000;
/** A connection that lasted this long was a good one even if nothing was said. */
const STABLE_MS = 5000;
/** Past this the connection is given up until the reader has caught up to half of it. */
const QUEUE_LIMIT_BYTES = 8_388_608;
const TRANSIENT: readonly ErrorClass[] = ["unavailable", "throttled", "deadline_exceeded", "cancelled"];

interface Offsets {
  stdout: number;
  stderr: number;
}

export interface ExecSessionPlace {
  readonly vm: string;
  readonly execId: string;
  /** Path of the exec's REST resource. */
  readonly path: string;
}

export class ExecSession {
  readonly vm: string;
  readonly execId: string;
  /** Settles when the command has ended and all its output has arrived here. Rejects when the session failed or was detached. */
  readonly exited: Promise<ExecExit>;
  readonly #transport: Transport;
  readonly #path: string;
  readonly #options: AttachOptions;
  readonly #queue = new OutputQueue();
  readonly #stdin = new StdinWindow();
  readonly #stop = new AbortController();
  readonly #received: Offsets;
  readonly #consumed: Offsets;
  readonly #acked: Offsets;
  readonly #settleExit: { readonly resolve: (exit: ExecExit) => void; readonly reject: (error: Error) => void };
  #totals: Offsets | undefined;
  #exit: ExecExit | undefined;
  #fatal: PlatformError | undefined;
  #connection: ExecConnection | undefined;
  #isAttached = false;
  #wasAttached = false;
  #size: { readonly rows: number; readonly cols: number } | undefined;
  #ackTimer: NodeJS.Timeout | undefined;
  #lastProgressMs = performance.now();
  #attempt = 0;
  /** Writes and the end of input take their turns, however they are called. */
  #writing: Promise<unknown> = Promise.resolve();
  /** Position in the input up to which the present connection has carried it. */
  #stdinSent = 0;
  #allConsumed: (() => void) | undefined;

  constructor(transport: Transport, place: ExecSessionPlace, options: AttachOptions = {}) {
    this.#transport = transport;
    this.#path = place.path;
    this.#options = options;
    this.vm = place.vm;
    this.execId = place.execId;
    const start = { stdout: options.stdoutOffset ?? 0, stderr: options.stderrOffset ?? 0 };
    this.#received = { ...start };
    this.#consumed = { ...start };
    this.#acked = { ...start };
    const { promise, resolve, reject } = Promise.withResolvers<ExecExit>();
    this.exited = promise;
    this.exited.catch(() => undefined); // a caller that only reads the output sees the failure there
    this.#settleExit = { resolve, reject };
    for (const source of [options.signal, transport.closing]) {
      const onAbort = (): void => this.#fail(toCallerError(source?.reason));
      if (source?.aborted === true) onAbort();
      else source?.addEventListener("abort", onAbort, { once: true, signal: this.#stop.signal });
    }
    this.#run().catch((error: unknown) => this.#fail(error instanceof Error ? error : new Error(String(error))));
  }

  /** Output as it comes, both streams in order of arrival, to its end. One reader. @throws what the session failed with */
  async *output(): AsyncGenerator<ExecOutputChunk, void, undefined> {
    for (;;) {
      const chunk = await this.#queue.take();
      if (chunk === undefined) return;
      yield chunk;
      this.#consumed[chunk.stream] = chunk.offset + chunk.data.length;
      this.#scheduleAck();
    }
  }

  /** Reads to the end. For output known to be small: `maxBytes` bounds both streams together, and the rest is thrown away. */
  async collect(options: { readonly maxBytes?: number } = {}): Promise<{ stdout: Buffer; stderr: Buffer; exit: ExecExit }> {
    const kept: Record<OutputStream, Uint8Array[]> = { stdout: [], stderr: [] };
    let room = options.maxBytes ?? 16_777_216;
    for await (const chunk of this.output()) {
      const data = chunk.data.subarray(0, room);
      room -= data.length;
      if (data.length > 0) kept[chunk.stream].push(data);
    }
    return { stdout: Buffer.concat(kept.stdout), stderr: Buffer.concat(kept.stderr), exit: await this.exited };
  }

  /**
   * Gives bytes to the command's standard input; resolves when they fit into the window of unconfirmed bytes.
   * The result is false when nobody reads any more because the command has ended.
   */
  async writeStdin(data: Uint8Array | string): Promise<boolean> {
    const turn = this.#writing.then(async () => await this.#write(typeof data === "string" ? Buffer.from(data) : data));
    this.#writing = turn.catch(() => undefined); // its own caller sees the failure
    return await turn;
  }

  /** No more input: the command sees the end of its standard input after everything written so far. */
  endStdin(): void {
    this.#writing = this.#writing.then(() => {
      this.#stdin.end();
      if (this.#isAttached) this.#sendStdinEnd();
    });
  }

  /** Tells the command's terminal its size; the last size is told again after a broken connection. */
  resize(size: { readonly rows: number; readonly cols: number }): void {
    this.#size = size;
    if (this.#isAttached) this.#connection?.send({ type: "resize", ...size });
  }

  /** Sends a signal such as `SIGINT`, and resolves when the guest has it. Tried again while the daemon is away. */
  async signal(name: string): Promise<void> {
    const deadlineMs = performance.now() + (this.#options.reconnectMs ?? DEFAULT_RECONNECT_MS);
    for (let attempt = 0; this.#exit === undefined; attempt += 1) {
      try {
        await this.#transport.empty("POST", `${this.#path}/signal`, { json: { signal: name }, signal: this.#stop.signal });
        return;
      } catch (error) {
        if (this.#exit !== undefined) return; // it ended while the signal was under way
        this.#throwIfFailed();
        if (!isTransient(error) || performance.now() > deadlineMs) throw error;
      }
      await sleep(backoffMs(attempt), undefined, { signal: this.#stop.signal }).catch(() => this.#throwIfFailed());
    }
  }

  /** Stops taking part; the command goes on and can be attached again. */
  detach(): void {
    this.#fail(new PlatformError("REQUEST_CANCELLED", "Detached from the command"));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.detach();
    await Promise.resolve();
  }

  async #write(data: Uint8Array): Promise<boolean> {
    for (let rest = data; rest.byteLength > 0;) {
      this.#throwIfFailed();
      const taken = await this.#stdin.push(rest);
      if (taken === 0) {
        this.#throwIfFailed();
        return false;
      }
      rest = rest.subarray(taken);
      if (this.#isAttached) this.#sendStdin();
    }
    return !this.#stdin.isClosed;
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted && this.#exit === undefined) {
      await this.#queue.waitBelow(QUEUE_LIMIT_BYTES / 2);
      if (this.#stop.signal.aborted) return;
      const problem = await this.#attachOnce();
      if (this.#stop.signal.aborted || this.#exit !== undefined) break;
      if (problem !== undefined && !isTransient(problem)) throw problem;
      if (this.#wasAttached && this.#attempt === 0) this.#options.onConnection?.("lost");
      const silentMs = performance.now() - this.#lastProgressMs;
      if (silentMs > (this.#options.reconnectMs ?? DEFAULT_RECONNECT_MS)) throw gaveUp(silentMs, problem);
      await sleep(backoffMs(this.#attempt), undefined, { signal: this.#stop.signal });
      this.#attempt += 1;
    }
  }

  /** One connection from handshake to its end. The result is why it ended, if that is known. */
  async #attachOnce(): Promise<PlatformError | undefined> {
    this.#fatal = undefined;
    const handlers = {
      onMessage: (message: ExecServerMessage) => this.#onMessage(message),
      onOutput: (frame: OutputFrame) => this.#onOutput(frame),
    };
    let connection: ExecConnection;
    try {
      connection = await openExecConnection(this.#transport, {
        path: `${this.#path}/attach`,
        stdoutOffset: this.#received.stdout,
        stderrOffset: this.#received.stderr,
        handlers,
        timeoutMs: HANDSHAKE_TIMEOUT_MS,
      });
    } catch (error) {
      return await this.#explainRefusal(error);
    }
    const openedMs = performance.now();
    this.#connection = connection;
    if (this.#stop.signal.aborted) connection.end();
    const attachTimer = setTimeout(() => {
      if (!this.#isAttached) connection.end();
    }, ATTACH_TIMEOUT_MS);
    const problem = await connection.closed;
    clearTimeout(attachTimer);
    this.#connection = undefined;
    this.#isAttached = false;
    if (performance.now() - openedMs >= STABLE_MS) this.#noteProgress();
    return this.#fatal ?? problem;
  }

  /** A WebSocket handshake says nothing about why it was refused; the exec's resource does. */
  async #explainRefusal(error: unknown): Promise<PlatformError> {
    try {
      await this.#transport.empty("GET", this.#path, { signal: this.#stop.signal });
    } catch (reason) {
      if (reason instanceof PlatformError) return reason;
    }
    if (error instanceof PlatformError) return error;
    throw error;
  }

  #onMessage(message: ExecServerMessage): void {
    switch (message.type) {
      case "attached":
        return this.#onAttached(message.stdin_offset);
      case "stdin_ack":
        this.#stdin.ack(message.offset);
        return this.#noteProgress();
      case "exit":
        return this.#onExit(message);
      case "error":
        this.#fatal = fromErrorBody(message.error);
        return this.#connection?.end();
    }
  }

  #onAttached(stdinOffset: number): void {
    this.#isAttached = true;
    this.#wasAttached = true;
    this.#options.onConnection?.("attached");
    this.#stdinSent = this.#stdin.attach(stdinOffset);
    this.#sendStdin();
    this.#sendStdinEnd();
    if (this.#size !== undefined) this.#connection?.send({ type: "resize", ...this.#size });
    this.#sendAck();
  }

  #onOutput(frame: OutputFrame): void {
    const expected = this.#received[frame.stream];
    const skip = expected - frame.offset;
    if (skip < 0) {
      const what = `byte ${frame.offset} of ${frame.stream} where byte ${expected} was due`;
      throw new PlatformError("EXEC_STREAM_GAP", `The daemon sent ${what}`);
    }
    if (skip >= frame.data.length) return;
    this.#noteProgress();
    this.#received[frame.stream] = frame.offset + frame.data.length;
    this.#queue.put({ stream: frame.stream, offset: expected, data: frame.data.subarray(skip) });
    if (this.#queue.size > QUEUE_LIMIT_BYTES) this.#connection?.end();
  }

  #onExit(message: Extract<ExecServerMessage, { type: "exit" }>): void {
    this.#totals = { stdout: message.stdout_bytes, stderr: message.stderr_bytes };
    if (this.#received.stdout < this.#totals.stdout || this.#received.stderr < this.#totals.stderr) {
      throw new PlatformError("EXEC_STREAM_GAP", "The daemon told of the command's end before all of its output");
    }
    this.#exit = message.exit;
    this.#stdin.close();
    this.#queue.end();
    this.#settleExit.resolve(message.exit);
    this.#finish().catch(() => undefined); // closing is best effort: everything has been delivered
  }

  /** Keeps the connection until the reader has taken everything, so that the guest hears of it and frees its memory. */
  async #finish(): Promise<void> {
    if (!this.#isAllConsumed()) {
      await new Promise<void>((resolve) => {
        this.#allConsumed = resolve;
        this.#stop.signal.addEventListener("abort", () => resolve(), { once: true });
      });
    }
    this.#sendAck();
    this.#stop.abort();
    this.#connection?.end();
  }

  #isAllConsumed(): boolean {
    const totals = this.#totals;
    return totals !== undefined && this.#consumed.stdout >= totals.stdout && this.#consumed.stderr >= totals.stderr;
  }

  #scheduleAck(): void {
    if (this.#isAllConsumed()) this.#allConsumed?.();
    const unacked = this.#consumed.stdout + this.#consumed.stderr - this.#acked.stdout - this.#acked.stderr;
    if (unacked >= ACK_BYTES) return this.#sendAck();
    if (unacked > 0) this.#ackTimer ??= setTimeout(() => this.#sendAck(), ACK_DELAY_MS);
  }

  #sendAck(): void {
    clearTimeout(this.#ackTimer);
    this.#ackTimer = undefined;
    if (!this.#isAttached) return;
    this.#acked.stdout = this.#consumed.stdout;
    this.#acked.stderr = this.#consumed.stderr;
    this.#connection?.send({ type: "ack", stdout: this.#acked.stdout, stderr: this.#acked.stderr });
  }

  /** Sends what this connection has not carried yet. */
  #sendStdin(): void {
    for (const chunk of this.#stdin.from(this.#stdinSent)) this.#connection?.sendStdin(chunk.offset, chunk.data);
    this.#stdinSent = this.#stdin.position;
  }

  #sendStdinEnd(): void {
    const offset = this.#stdin.endOffset;
    if (offset !== undefined) this.#connection?.send({ type: "stdin_end", offset });
  }

  #noteProgress(): void {
    this.#lastProgressMs = performance.now();
    this.#attempt = 0;
  }

  #throwIfFailed(): void {
    if (this.#stop.signal.aborted && this.#exit === undefined) throw toCallerError(this.#stop.signal.reason);
  }

  #fail(error: Error): void {
    if (this.#stop.signal.aborted) return;
    clearTimeout(this.#ackTimer);
    this.#stop.abort(error);
    this.#stdin.close();
    this.#queue.end(error);
    this.#settleExit.reject(error);
    this.#connection?.end();
  }
}

function isTransient(error: unknown): boolean {
  if (!(error instanceof PlatformError)) return false;
  return error.code === "EXEC_STREAM_GAP" || TRANSIENT.includes(error.class);
}

/** Full jitter: between nothing and 50 ms, doubling to 1 s. */
function backoffMs(attempt: number): number {
  return Math.random() * Math.min(MAX_BACKOFF_MS, 50 * 2 ** Math.min(attempt, 10));
}

function gaveUp(silentMs: number, cause: PlatformError | undefined): PlatformError {
  const seconds = Math.round(silentMs / 1000);
  const why = cause === undefined ? "the connection broke" : cause.message;
  return new PlatformError("DAEMON_UNREACHABLE", `Lost the command's connection for ${seconds} s and gave up: ${why}`, { cause });
}

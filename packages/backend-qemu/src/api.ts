/**
 * QMP, QEMU's control protocol, over its Unix socket: one JSON object a line (QEMU docs/interop/qmp-spec).
 *
 *   connecting --greeting--> negotiating --qmp_capabilities answered--> ready --end, garbage, close()--> closed
 *
 * Invariants: each command is answered once, rejected once, or abandoned by its caller (the late answer is then
 * dropped); a line longer than the bound, text that is not JSON, an answer nobody asked for, or too many abandoned
 * commands end the connection with `BACKEND_PROTOCOL`. QEMU serves one client of a monitor at a time, the next one
 * waits without a greeting. Called by `machine.ts`. It does not reconnect and knows no command.
 */
import { connect, type Socket } from "node:net";
import { abortable, PlatformError, withDeadline, type Clock } from "@fluxvm/core";

export interface QmpEvent {
  readonly name: string;
  readonly data: Readonly<Record<string, unknown>>;
}

export interface QmpOptions {
  readonly path: string;
  readonly clock: Clock;
  /** For the greeting and the handshake. */
  readonly handshakeTimeoutMs: number;
  /** For each command. */
  readonly commandTimeoutMs: number;
  /** Called for each event, in order; must not throw. */
  readonly onEvent: (event: QmpEvent) => void;
}

export interface ExecuteOptions {
  readonly signal?: AbortSignal | undefined;
}

export interface QmpClient {
  /** QEMU's version, from the greeting. */
  readonly version: { readonly major: number; readonly minor: number };
  /**
   * @throws PlatformError `BACKEND_PROTOCOL` with QEMU's own words when it refuses, `VM_EXITED` when the connection ends first,
   * `DEADLINE_EXCEEDED`; the signal's reason.
   */
  execute(command: string, args?: Readonly<Record<string, unknown>>, options?: ExecuteOptions): Promise<unknown>;
  /** Settles once with why, never rejects. */
  readonly closed: Promise<Error>;
  close(): void;
}

/** QEMU's answers to the commands used here are below 100 KB. */
const MAX_LINE_BYTES = 1024 * 1024;
const MAX_PENDING = 64;
const MAX_ABANDONED = 256;

/** Connects and negotiates. @throws what `connect` throws (`ENOENT`, `ECONNREFUSED`), `BACKEND_PROTOCOL`, `DEADLINE_EXCEEDED`. */
export async function connectQmp(options: QmpOptions, call: ExecuteOptions = {}): Promise<QmpClient> {
  const connection = new QmpConnection(options);
  try {
    await withDeadline(
      { clock: options.clock, timeoutMs: options.handshakeTimeoutMs, signal: call.signal, what: "waiting for QEMU's control socket" },
      (signal) => connection.open(signal),
    );
  } catch (error) {
    connection.close();
    throw error;
  }
  return connection;
}

interface Pending {
  readonly command: string;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

class QmpConnection implements QmpClient {
  readonly #options: QmpOptions;
  readonly #socket: Socket;
  readonly #pending = new Map<number, Pending>();
  readonly #abandoned = new Set<number>();
  readonly #greeting = Promise.withResolvers<QmpClient["version"]>();
  readonly #closed = Promise.withResolvers<Error>();
  readonly closed: Promise<Error> = this.#closed.promise;
  #version: QmpClient["version"] | undefined;
  #nextId = 1;
  #ended: Error | undefined;
  #chunks: Buffer[] = [];
  #buffered = 0;

  constructor(options: QmpOptions) {
    this.#options = options;
    this.#greeting.promise.catch(() => undefined); // open() reports it; a close before open() has no reader
    this.#socket = connect(options.path);
    this.#socket.on("data", (chunk: Buffer) => this.#take(chunk)); // no encoding is set, so never text
    this.#socket.on("error", (error) => this.#end(this.#version === undefined ? error : closedByQemu(error)));
    this.#socket.on("close", () => this.#end(closedByQemu()));
  }

  get version(): QmpClient["version"] {
    return this.#version ?? { major: 0, minor: 0 };
  }

  async open(signal: AbortSignal): Promise<void> {
    this.#version = await abortable(this.#greeting.promise, signal);
    await this.execute("qmp_capabilities", undefined, { signal });
  }

  async execute(command: string, args?: Readonly<Record<string, unknown>>, options: ExecuteOptions = {}): Promise<unknown> {
    if (this.#ended !== undefined) throw this.#ended;
    if (this.#pending.size >= MAX_PENDING) throw new PlatformError("QUEUE_FULL", "Too many commands wait for QEMU", { retryAfterMs: 1000 });
    const { clock, commandTimeoutMs } = this.#options;
    const id = this.#nextId++;
    const answer = new Promise<unknown>((resolve, reject) => this.#pending.set(id, { command, resolve, reject }));
    this.#socket.write(`${JSON.stringify({ execute: command, ...(args === undefined ? {} : { arguments: args }), id })}\n`);
    try {
      return await withDeadline(
        { clock, timeoutMs: commandTimeoutMs, signal: options.signal, what: `QEMU's answer to ${command}` },
        () => answer,
      );
    } catch (error) {
      this.#abandon(id);
      throw error;
    }
  }

  close(): void {
    this.#end(new PlatformError("VM_EXITED", "The control connection was closed"));
  }

  /** Forgets a command whose caller went away; its answer may still come. */
  #abandon(id: number): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    this.#pending.delete(id);
    pending.resolve(undefined); // nobody waits any more
    this.#abandoned.add(id);
    if (this.#abandoned.size > MAX_ABANDONED) this.#fail("it does not answer");
  }

  #take(chunk: Buffer): void {
    let rest = chunk;
    while (this.#ended === undefined) {
      const at = rest.indexOf(10);
      if (at === -1) break;
      const line = Buffer.concat([...this.#chunks, rest.subarray(0, at)]).toString("utf8");
      this.#chunks = [];
      this.#buffered = 0;
      rest = rest.subarray(at + 1);
      if (line.trim() !== "") this.#dispatch(line);
    }
    this.#buffered += rest.length;
    if (rest.length > 0) this.#chunks.push(rest);
    if (this.#buffered > MAX_LINE_BYTES) this.#fail("a line is too long");
  }

  #dispatch(line: string): void {
    const message = parseObject(line);
    if (message === undefined) return this.#fail("not a JSON object");
    if (this.#version === undefined && "QMP" in message) return this.#greet(message["QMP"]);
    if (typeof message["event"] === "string") {
      return this.#options.onEvent({ name: message["event"], data: asObject(message["data"]) ?? {} });
    }
    if ("return" in message || "error" in message) return this.#answer(message);
    this.#fail("an unknown kind of message");
  }

  #greet(greeting: unknown): void {
    const qemu = asObject(asObject(asObject(greeting)?.["version"])?.["qemu"]);
    const { major, minor } = qemu ?? {};
    if (typeof major !== "number" || typeof minor !== "number") return this.#fail("a greeting without a version");
    this.#version = { major, minor };
    this.#greeting.resolve(this.#version);
  }

  #answer(message: Readonly<Record<string, unknown>>): void {
    const id = message["id"];
    if (typeof id !== "number") return this.#fail("an answer without an id");
    if (this.#abandoned.delete(id)) return;
    const pending = this.#pending.get(id);
    if (pending === undefined) return this.#fail("an answer nobody asked for");
    this.#pending.delete(id);
    if ("error" in message) pending.reject(refusal(pending.command, message["error"]));
    else pending.resolve(message["return"]);
  }

  #fail(what: string): void {
    this.#end(new PlatformError("BACKEND_PROTOCOL", `QEMU's control socket sent something unexpected: ${what}`));
  }

  #end(error: Error): void {
    if (this.#ended !== undefined) return;
    this.#ended = error;
    this.#chunks = [];
    this.#socket.destroy();
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
    this.#greeting.reject(error);
    this.#closed.resolve(error);
  }
}

function closedByQemu(cause?: Error): PlatformError {
  return new PlatformError("VM_EXITED", "QEMU closed its control socket", cause === undefined ? {} : { cause });
}

function refusal(command: string, error: unknown): PlatformError {
  const { class: kind, desc } = asObject(error) ?? {};
  const words = typeof desc === "string" ? desc.slice(0, 500) : "no reason given";
  return new PlatformError("BACKEND_PROTOCOL", `QEMU refused ${command}: ${words}`, { details: { command, class: kind } });
}

function parseObject(line: string): Readonly<Record<string, unknown>> | undefined {
  try {
    return asObject(JSON.parse(line));
  } catch {
    return undefined;
  }
}

export function asObject(value: unknown): Readonly<Record<string, unknown>> | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Readonly<Record<string, unknown>>) : undefined; // any object's members are unknown
}

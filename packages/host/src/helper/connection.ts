/**
 * One life of the helper process: started, ready, gone. Requests go out with a number, replies come back in any order.
 *
 *     starting ──ready──> open ──process or socket ends──> gone
 *         └───────────────────────────────────────────────^
 *
 * A gone connection fails what is under way with `HOST_HELPER_UNAVAILABLE`; `supervisor.ts` makes the next one.
 */
import { spawn, type ChildProcess } from "node:child_process";
import type { Duplex } from "node:stream";
import { PlatformError } from "@fluxvm/core";
import type { Logger } from "@fluxvm/telemetry";
import { encodeFrame, FrameDecoder } from "./frame.ts";

const MAX_PENDING = 1024;
const MAX_LOG_LINE = 1000;

/** How an operation failed in the helper; see `native/host-helper/src/failure.rs`. */
export interface HelperFailure {
  readonly kind: "invalid" | "system" | "stale" | "busy" | "deadline" | "unknown_op";
  readonly step: string;
  readonly errno: number;
  readonly code: string;
  readonly message: string;
}

export class HelperFailureError extends Error {
  override readonly name = "HelperFailureError";
  readonly failure: HelperFailure;
  constructor(failure: HelperFailure) {
    super(`${failure.step}: ${failure.message}`);
    this.failure = failure;
  }
}

export interface ExitedEvent {
  readonly event: "exited";
  readonly watchId: number;
  readonly code?: number;
  readonly signal?: string;
}

type Message =
  | { readonly event: "ready" }
  | ExitedEvent
  | { readonly event?: undefined; readonly id: number; readonly ok?: unknown; readonly failure?: HelperFailure };

interface Pending {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

export interface ConnectionOptions {
  readonly binaryPath: string;
  readonly lockFd: number | undefined;
  readonly logger: Logger;
  onExited(event: ExitedEvent): void;
}

export function helperUnavailable(cause?: unknown): PlatformError {
  return new PlatformError("HOST_HELPER_UNAVAILABLE", "The host helper does not answer", { cause, retryAfterMs: 500 });
}

export class HelperConnection {
  /** Resolves when the helper answers; rejects when it ended before. */
  readonly ready: Promise<void>;
  /** Resolves when the process has ended and its descriptors are closed. */
  readonly gone: Promise<void>;
  readonly #options: ConnectionOptions;
  readonly #child: ChildProcess;
  readonly #socket: Duplex;
  readonly #decoder = new FrameDecoder();
  readonly #pending = new Map<number, Pending>();
  #nextId = 1;
  #open = true;
  #onReady: () => void = () => undefined;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    const lock = options.lockFd === undefined ? [] : [options.lockFd];
    this.#child = spawn(options.binaryPath, ["serve"], {
      stdio: ["ignore", "ignore", "pipe", "pipe", ...lock],
      detached: true,
      env: {},
      cwd: "/",
    });
    this.#socket = this.#child.stdio[3] as Duplex; // "pipe" at index 3 is a socket pair
    const failed = new Promise<never>((_, reject) => {
      this.#child.once("error", (error) => reject(helperUnavailable(error)));
      this.#child.once("exit", () => reject(helperUnavailable()));
    });
    this.ready = Promise.race([new Promise<void>((resolve) => (this.#onReady = resolve)), failed]);
    this.ready.catch(() => undefined);
    this.gone = this.#watchEnd();
    this.#socket.on("data", (bytes: Buffer) => this.#take(bytes));
    this.#child.stderr?.on("data", (bytes: Buffer) => {
      options.logger.warn({ line: bytes.toString("utf8").trimEnd().slice(0, MAX_LOG_LINE) }, "host helper says");
    });
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  get isOpen(): boolean {
    return this.#open;
  }

  async request(op: string, params: unknown): Promise<unknown> {
    if (!this.#open) throw helperUnavailable();
    if (this.#pending.size >= MAX_PENDING) throw new PlatformError("QUEUE_FULL", "Too many requests wait for the host helper");
    const id = this.#nextId++;
    return await new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject });
      this.#socket.write(encodeFrame({ id, op, params }));
    });
  }

  /** Closes the socket: the helper ends by itself. */
  end(): void {
    this.#socket.end();
  }

  destroy(): void {
    this.#child.kill("SIGKILL");
  }

  async #watchEnd(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#child.once("error", () => resolve());
      this.#child.once("exit", () => resolve());
      this.#socket.on("error", () => this.destroy());
      this.#socket.once("end", () => this.#socket.end());
    });
    this.#open = false;
    this.#socket.destroy();
    const error = helperUnavailable();
    for (const pending of this.#pending.values()) pending.reject(error);
    this.#pending.clear();
  }

  #take(bytes: Buffer): void {
    let messages: unknown[];
    try {
      messages = this.#decoder.push(bytes);
    } catch (error) {
      this.#options.logger.error({ err: error }, "host helper sent a malformed frame");
      this.destroy();
      return;
    }
    for (const message of messages) this.#handle(message as Message); // our own binary, of the same version, sent it
  }

  #handle(message: Message): void {
    if (message.event === "ready") return this.#onReady();
    if (message.event === "exited") return this.#options.onExited(message);
    const pending = this.#pending.get(message.id);
    this.#pending.delete(message.id);
    if (message.failure === undefined) pending?.resolve(message.ok);
    else pending?.reject(new HelperFailureError(message.failure));
  }
}

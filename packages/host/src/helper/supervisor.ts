/**
 * The daemon's helper: starts it, starts it again when it dies, and watches again what it watched. Its death loses
 * nothing: requests under way fail, requests that come meanwhile wait, exits that happened meanwhile are found out.
 *
 *     connecting ──ready──> connected ──death──> waiting (backoff) ──> connecting …
 *          └──────────────── close() ──> closed ─────────────────────────^ never
 */
import { abortable, isPlatformError, PlatformError, withDeadline, type CallOptions, type Clock } from "@fluxvm/core";
import type { Logger } from "@fluxvm/telemetry";
import type { ProcessExit, ProcessIdentity } from "../process/process-spec.ts";
import { HelperConnection, HelperFailureError, helperUnavailable, type ExitedEvent } from "./connection.ts";

const FIRST_RESTART_MS = 20;
const MAX_RESTART_MS = 2000;
const READY_TIMEOUT_MS = 5000;
const CLOSE_TIMEOUT_MS = 3000;
const MAX_EARLY_EXITS = 1024;

export interface SupervisorOptions {
  readonly binaryPath: string;
  readonly lockFd?: number | undefined;
  readonly logger: Logger;
  readonly clock: Clock;
  /** Called each time the helper had to be started again. */
  readonly onRestart?: (() => void) | undefined;
}

export interface RequestOptions extends CallOptions {
  readonly timeoutMs: number;
  /** Doing it twice is the same as doing it once. */
  readonly repeatable: boolean;
}

interface Watched {
  readonly identity: ProcessIdentity;
  settle(exit: ProcessExit): void;
}

export class HelperSupervisor {
  readonly #options: SupervisorOptions;
  readonly #watches = new Map<number, Watched>();
  /** Ends that were told before the launch that caused them was answered. */
  readonly #earlyExits = new Map<number, ProcessExit>();
  #nextWatchId = 1;
  #failures = 0;
  #closed = false;
  #connection: Promise<HelperConnection>;
  #live: HelperConnection | undefined;

  constructor(options: SupervisorOptions) {
    this.#options = options;
    this.#connection = this.#connect();
    this.#connection.catch(() => undefined);
  }

  /** Resolves when the first connection stands. @throws PlatformError `HOST_HELPER_UNAVAILABLE` */
  async start(): Promise<void> {
    try {
      await this.#connection;
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  get pid(): number | undefined {
    return this.#live?.pid;
  }

  newWatchId(): number {
    return this.#nextWatchId++;
  }

  /**
   * One request within the caller's signal and a deadline, waiting for a helper that is being started again. With
   * `repeatable`, a request that was under way when the helper died is made again.
   */
  async request(op: string, params: unknown, options: RequestOptions): Promise<unknown> {
    const { clock } = this.#options;
    const what = `host helper: ${op}`;
    return await withDeadline({ clock, timeoutMs: options.timeoutMs, signal: options.signal, what }, async (signal) => {
      for (;;) {
        const connection = await this.#connected(signal);
        try {
          return await connection.request(op, params);
        } catch (error) {
          if (!options.repeatable || this.#closed || signal.aborted || !isPlatformError(error, "HOST_HELPER_UNAVAILABLE")) throw error;
          await abortable(connection.gone, signal);
        }
      }
    });
  }

  /** A request whose answer must be seen even when nobody waits any more. No signal, no deadline but the helper's. */
  async requestToEnd(op: string, params: unknown, options: CallOptions): Promise<unknown> {
    const connection = await this.#connected(options.signal);
    return await connection.request(op, params);
  }

  /** Follows a process that the helper already watches under `watchId`. */
  follow(watchId: number, identity: ProcessIdentity): Promise<ProcessExit> {
    const early = this.#earlyExits.get(watchId);
    this.#earlyExits.delete(watchId);
    if (early !== undefined) return Promise.resolve(early);
    return new Promise((resolve) => {
      this.#watches.set(watchId, { identity, settle: resolve });
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    const live = this.#live;
    if (live === undefined) return;
    live.end();
    const cancel = this.#options.clock.schedule(CLOSE_TIMEOUT_MS, () => live.destroy());
    await live.gone;
    cancel();
  }

  async #connected(signal: AbortSignal): Promise<HelperConnection> {
    for (;;) {
      if (this.#closed) throw helperUnavailable();
      const attempt = this.#connection;
      try {
        return await abortable(attempt, signal);
      } catch (error) {
        if (signal.aborted || attempt === this.#connection) throw error;
      }
    }
  }

  async #connect(): Promise<HelperConnection> {
    const { clock, logger, binaryPath, lockFd } = this.#options;
    const connection = new HelperConnection({ binaryPath, lockFd, logger, onExited: (event) => this.#onExited(event) });
    this.#live = connection;
    const startedMs = clock.bootMs();
    connection.gone.then(
      () => this.#onGone(connection, clock.bootMs() - startedMs),
      () => undefined,
    ); // gone never rejects
    try {
      await withDeadline({ clock, timeoutMs: READY_TIMEOUT_MS, what: "starting the host helper" }, () => connection.ready);
    } catch (error) {
      connection.destroy();
      throw error instanceof PlatformError && error.code === "DEADLINE_EXCEEDED" ? helperUnavailable(error) : error;
    }
    await this.#watchAgain(connection);
    return connection;
  }

  #onGone(connection: HelperConnection, livedMs: number): void {
    if (this.#live === connection) this.#live = undefined;
    if (this.#closed) return;
    this.#failures = livedMs > MAX_RESTART_MS ? 1 : this.#failures + 1;
    const delayMs = Math.min(MAX_RESTART_MS, FIRST_RESTART_MS * 2 ** (this.#failures - 1));
    this.#options.logger.warn({ delayMs }, "host helper ended, starting it again");
    this.#options.onRestart?.();
    this.#connection = this.#options.clock.sleep(delayMs).then(() => {
      if (this.#closed) throw helperUnavailable();
      return this.#connect();
    });
    this.#connection.catch(() => undefined);
  }

  async #watchAgain(connection: HelperConnection): Promise<void> {
    for (const [watchId, { identity }] of this.#watches) {
      try {
        await connection.request("watch", { identity, watchId });
      } catch (error) {
        if (!(error instanceof HelperFailureError)) throw error;
        this.#settle(watchId, { unknown: true });
      }
    }
  }

  #onExited(event: ExitedEvent): void {
    const { code, signal, watchId } = event;
    const exit: ProcessExit = code !== undefined ? { code } : signal !== undefined ? { signal } : { unknown: true };
    if (this.#settle(watchId, exit)) return;
    this.#earlyExits.set(watchId, exit);
    // Left over from calls that were given up: the oldest go.
    for (const oldest of this.#earlyExits.keys()) {
      if (this.#earlyExits.size <= MAX_EARLY_EXITS) break;
      this.#earlyExits.delete(oldest);
    }
  }

  #settle(watchId: number, exit: ProcessExit): boolean {
    const watched = this.#watches.get(watchId);
    this.#watches.delete(watchId);
    watched?.settle(exit);
    return watched !== undefined;
  }
}

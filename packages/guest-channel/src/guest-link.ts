/**
 * Keeps a connection to one guest's agent for as long as somebody wants it.
 *
 *     connecting ──WELCOME──► ready ──lost, silent──► lost ──WELCOME──► ready
 *         └──────── refused token, wrong version; close(), destroy() ────────► closed
 *
 * A loop of its own dials, greets, watches (a guest that says nothing for a while is pinged, and given up when it does
 * not answer) and dials again with growing pauses. Calls wait in `channel()` meanwhile. `closed` is final.
 */
import {
  computeBackoffMs,
  PlatformError,
  randomHex,
  toPlatformError,
  withDeadline,
  type CallOptions,
  type Clock,
  type Random,
} from "@fluxvm/core";
import type { Logger } from "@fluxvm/telemetry";
import { openChannel, type GuestChannel } from "./channel.ts";
import { openTransport, type GuestEndpoint, type OpenVsock } from "./transport.ts";

export type GuestLinkState = "connecting" | "ready" | "lost" | "closed";

export interface GuestLinkOptions {
  readonly endpoint: GuestEndpoint;
  readonly token: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger?: Logger | undefined;
  readonly openVsock?: OpenVsock | undefined;
  /** Silence after which the guest is pinged. */
  readonly pingAfterMs?: number;
  /** How long it may take to answer. */
  readonly pingTimeoutMs?: number;
}

const DEFAULT_PING_AFTER_MS = 10_000;
const DEFAULT_PING_TIMEOUT_MS = 10_000;
/** While the guest boots, finding it early matters more than a few failed dials. */
const BOOT_BACKOFF = { firstDelayMs: 20, maxDelayMs: 100 };
const LOST_BACKOFF = { firstDelayMs: 20, maxDelayMs: 1000 };

/** Errors that trying again does not cure. */
const FINAL_CODES: ReadonlySet<string> = new Set(["AGENT_AUTH_FAILED", "HOST_CAPABILITY_MISSING"]);

export class GuestLink {
  readonly #options: GuestLinkOptions;
  readonly #abort = new AbortController();
  readonly #sessionId: string;
  readonly #listeners = new Set<(state: GuestLinkState) => void>();
  readonly #done: Promise<void>;
  #state: GuestLinkState = "connecting";
  #channel: GuestChannel | undefined;
  #next = Promise.withResolvers<GuestChannel>();
  #lastError: PlatformError | undefined;

  constructor(options: GuestLinkOptions) {
    this.#options = options;
    this.#sessionId = randomHex(options.random, 16);
    this.#next.promise.catch(() => undefined); // whoever waits sees it
    this.#done = this.#run();
  }

  get state(): GuestLinkState {
    return this.#state;
  }

  /** Of the current or last connection. */
  get channelIfReady(): GuestChannel | undefined {
    return this.#channel;
  }

  /** What the last attempt failed with. */
  get lastError(): PlatformError | undefined {
    return this.#lastError;
  }

  subscribe(listener: (state: GuestLinkState) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener); // the result says nothing new
  }

  /** The connection, once there is one. @throws PlatformError why there will be none. */
  async channel(options: CallOptions): Promise<GuestChannel> {
    const { signal } = options;
    signal.throwIfAborted();
    if (this.#channel !== undefined) return this.#channel;
    let onAbort: () => void = () => undefined;
    const aborted = new Promise<never>((_, reject) => {
      onAbort = (): void => reject(signal.reason as Error); // reasons are errors here
      signal.addEventListener("abort", onAbort, { once: true });
    });
    try {
      return await Promise.race([this.#next.promise, aborted]);
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** Ends the connection and the dialling. What waits fails with `AGENT_UNREACHABLE`. */
  async close(): Promise<void> {
    this.destroy();
    await this.#done;
  }

  destroy(): void {
    this.#abort.abort(new PlatformError("AGENT_UNREACHABLE", "The connection to the guest agent was closed"));
    this.#channel?.destroy(new PlatformError("AGENT_UNREACHABLE", "The connection to the guest agent was closed"));
  }

  async #run(): Promise<void> {
    const { signal } = this.#abort;
    for (let attempt = 1; !signal.aborted; attempt += 1) {
      try {
        const channel = await this.#dial(signal);
        attempt = 1;
        await this.#serve(channel, signal);
      } catch (error) {
        this.#lastError = toPlatformError(error);
        if (FINAL_CODES.has(this.#lastError.code)) break;
      }
      if (signal.aborted) break;
      const delayMs = computeBackoffMs(attempt, {
        ...(this.#state === "connecting" ? BOOT_BACKOFF : LOST_BACKOFF),
        random: this.#options.random,
      });
      await this.#options.clock.sleep(Math.max(delayMs, 5), { signal }).catch(() => undefined); // an abort ends the loop above
    }
    this.#end();
  }

  async #dial(signal: AbortSignal): Promise<GuestChannel> {
    const { endpoint, openVsock, token, clock, random } = this.#options;
    const transport = await openTransport(endpoint, { signal, openVsock });
    return await openChannel({ transport, token, sessionId: this.#sessionId, clock, random, signal });
  }

  async #serve(channel: GuestChannel, signal: AbortSignal): Promise<void> {
    this.#channel = channel;
    this.#next.resolve(channel);
    this.#enter("ready");
    const watch = new AbortController();
    const watching = this.#watchSilence(channel, watch.signal);
    const reason = await channel.closed;
    watch.abort();
    await watching;
    this.#channel = undefined;
    this.#lastError = reason;
    this.#next = Promise.withResolvers();
    this.#next.promise.catch(() => undefined); // whoever waits sees it
    if (signal.aborted) return;
    this.#options.logger?.info({ code: reason.code, reason: reason.message }, "guest agent connection lost");
    this.#enter("lost");
  }

  /** Ends the connection when the guest neither speaks nor answers. */
  async #watchSilence(channel: GuestChannel, signal: AbortSignal): Promise<void> {
    const { clock, pingAfterMs = DEFAULT_PING_AFTER_MS, pingTimeoutMs = DEFAULT_PING_TIMEOUT_MS } = this.#options;
    while (!signal.aborted) {
      const silentMs = clock.bootMs() - channel.heardMs;
      try {
        if (silentMs >= pingAfterMs) {
          await withDeadline({ clock, timeoutMs: pingTimeoutMs, signal, what: "the guest agent's answer" }, (s) =>
            channel.ping({ signal: s }),
          );
        } else {
          await clock.sleep(pingAfterMs - silentMs, { signal });
        }
      } catch {
        if (!signal.aborted) channel.destroy(new PlatformError("AGENT_UNREACHABLE", "The guest agent does not answer"));
        return;
      }
    }
  }

  #enter(state: GuestLinkState): void {
    this.#state = state;
    for (const listener of [...this.#listeners]) listener(state);
  }

  #end(): void {
    const final = this.#lastError !== undefined && FINAL_CODES.has(this.#lastError.code) ? this.#lastError : undefined;
    const error = final ?? new PlatformError("AGENT_UNREACHABLE", "The connection to the guest agent was closed");
    this.#next.reject(error);
    this.#enter("closed");
  }
}

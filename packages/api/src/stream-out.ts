/**
 * Sends an asynchronous sequence of bytes as a reply, only as fast as the client takes it.
 *
 * The headers wait for the first chunk, or for a moment when none comes, so that an error before it still gets its
 * status. An error after it can only be told by cutting the connection: the chunked body then lacks its end.
 */
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { abortable, type Clock } from "@fluxvm/core";
import { getCallerSignal, type ApiContext, type Exchange } from "./context.ts";

const FIRST_CHUNK_PATIENCE_MS = 100;
const KEEP_ALIVE_MS = 15_000;

export interface StreamOptions {
  readonly headers: Readonly<Record<string, string>>;
  /** Makes the sequence; it must end when the signal fires. */
  readonly open: (signal: AbortSignal) => AsyncIterable<Uint8Array>;
  /** Sent when nothing else was for 15 seconds, so that dead connections show. */
  readonly keepAlive?: Uint8Array | undefined;
}

export async function streamOut(context: ApiContext, { request, reply }: Exchange, options: StreamOptions): Promise<void> {
  const signal = AbortSignal.any([getCallerSignal({ request, reply }), context.stopping]);
  const iterator = options.open(signal)[Symbol.asyncIterator]();
  const chunks = new PatientReader(iterator, context.clock, signal);
  try {
    const first = await chunks.next(FIRST_CHUNK_PATIENCE_MS);
    reply.hijack();
    reply.raw.writeHead(200, { ...reply.getHeaders(), ...options.headers } as Record<string, string>); // reply headers are ours, all text
    reply.raw.flushHeaders();
    await pump(reply.raw, { chunks, first, signal, keepAlive: options.keepAlive });
    reply.raw.end();
  } catch (error) {
    if (!reply.raw.headersSent) throw error;
    if (!signal.aborted) context.logger.warn({ err: error, requestId: request.id }, "reply stream broke");
    reply.raw.destroy();
  } finally {
    iterator.return?.().catch(() => undefined); // its error was thrown above, or nobody waits for it any more
  }
}

interface Pump {
  readonly chunks: PatientReader;
  readonly first: Taken;
  readonly signal: AbortSignal;
  readonly keepAlive: Uint8Array | undefined;
}

async function pump(response: ServerResponse, { chunks, first, signal, keepAlive }: Pump): Promise<void> {
  let taken = first === "late" ? await chunks.next(keepAlive === undefined ? undefined : KEEP_ALIVE_MS) : first;
  while (taken !== "end") {
    const bytes = taken === "late" ? keepAlive : taken;
    if (bytes !== undefined && bytes.length > 0 && !response.write(bytes)) await once(response, "drain", { signal });
    taken = await chunks.next(keepAlive === undefined ? undefined : KEEP_ALIVE_MS);
  }
}

type Taken = Uint8Array | "end" | "late";

/** Takes from an iterator with a limit on patience; a chunk that came late is kept for the next call. */
class PatientReader {
  readonly #iterator: AsyncIterator<Uint8Array>;
  readonly #clock: Clock;
  readonly #signal: AbortSignal;
  #pending: Promise<Taken> | undefined;

  constructor(iterator: AsyncIterator<Uint8Array>, clock: Clock, signal: AbortSignal) {
    this.#iterator = iterator;
    this.#clock = clock;
    this.#signal = signal;
  }

  async next(patienceMs: number | undefined): Promise<Taken> {
    this.#pending ??= this.#iterator.next().then((result) => (result.done === true ? "end" : result.value));
    const pending = this.#pending;
    const taken = await abortable(patienceMs === undefined ? pending : this.#within(pending, patienceMs), this.#signal);
    if (taken !== "late") this.#pending = undefined;
    return taken;
  }

  async #within(pending: Promise<Taken>, patienceMs: number): Promise<Taken> {
    return await new Promise<Taken>((resolve, reject) => {
      const cancel = this.#clock.schedule(patienceMs, () => resolve("late"));
      pending.then(resolve, reject).finally(cancel);
    });
  }
}

/**
 * One connection to a guest agent, from HELLO to its end.
 *
 *     greeting ──WELCOME──► serving ──close(), loss, violation──► closed
 *        │  HELLO is repeated: 100 ms, growing to 500 ms
 *        └──REFUSED──► closed
 *
 * Invariants: frames of another epoch are dropped; only we open streams, with rising numbers; what the guest may make
 * us hold is bounded by the streams' windows; a violation closes the connection with `AGENT_PROTOCOL`. Sending is fair:
 * a frame per stream and turn. Streams end with the connection: what must outlive it is numbered one level up.
 */
import { PlatformError, type Clock, type Random } from "@fluxvm/core";
import type { Duplex } from "node:stream";
import { ChannelStream, type StreamPort } from "./channel-stream.ts";
import { encodeFrame, FRAME_TYPE, FrameReader, MAX_FRAME_PAYLOAD_BYTES, type Frame } from "./frame.ts";
import { parseFailure, parseWelcome, type Welcome } from "./handshake.ts";

export const PROTOCOL_VERSION = 1;
const FIRST_HELLO_MS = 100;
const LAST_HELLO_MS = 500;
/** HELLOs that nobody reads yet: more would only wait behind them. */
const MAX_WAITING_BYTES = 64 * 1024;
const EMPTY = new Uint8Array(0);

export interface ChannelOptions {
  readonly transport: Duplex;
  readonly token: string;
  readonly sessionId: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly signal: AbortSignal;
}

/** Greets until the guest answers. Owns the transport from now on: it is destroyed when this fails. */
export async function openChannel(options: ChannelOptions): Promise<GuestChannel> {
  const channel = new GuestChannel(options);
  try {
    await channel.greeted;
    return channel;
  } catch (error) {
    channel.destroy();
    throw error;
  }
}

export class GuestChannel {
  readonly #transport: Duplex;
  readonly #clock: Clock;
  readonly #epoch: number;
  readonly #reader = new FrameReader({ hunt: [FRAME_TYPE.welcome, FRAME_TYPE.refused] });
  readonly #streams = new Map<number, ChannelStream>();
  readonly #pongs = new Map<number, () => void>();
  readonly #port: StreamPort;
  readonly #greeting = Promise.withResolvers<void>();
  readonly #closing = Promise.withResolvers<PlatformError>();
  readonly #stopGreeting: () => void;
  #welcome: Welcome | undefined;
  #lastStream = 0;
  #lastPing = 0;
  #turn = 0;
  #corked = false;
  #failure: PlatformError | undefined;
  #heardMs: number;

  constructor(options: ChannelOptions) {
    this.#transport = options.transport;
    this.#clock = options.clock;
    this.#heardMs = options.clock.bootMs();
    this.#epoch = (Buffer.from(options.random.bytes(4)).readUInt32LE(0) | 1) >>> 0;
    this.#port = {
      wake: () => this.#flush(),
      sendWindow: (stream, consumed) => this.#send(FRAME_TYPE.window, stream, consumed, EMPTY),
      sendReset: (stream, error) => this.#send(FRAME_TYPE.reset, stream, 0, Buffer.from(JSON.stringify(error))),
      forget: (stream) => void this.#streams.delete(stream), // the result says nothing new
    };
    this.#greeting.promise.catch(() => undefined); // also told through `closed`
    const onAbort = (): void =>
      this.#fail(new PlatformError("REQUEST_CANCELLED", "Connecting to the guest agent was given up", { cause: options.signal.reason }));
    options.signal.addEventListener("abort", onAbort, { once: true });
    this.#stopGreeting = this.#greet(options, () => options.signal.removeEventListener("abort", onAbort));
    this.#transport
      .on("data", (chunk: Buffer) => this.#onBytes(chunk))
      .on("drain", () => this.#flush())
      .on("error", (cause: Error) => this.#fail(lost(cause)))
      .on("end", () => this.#fail(lost(undefined)))
      .on("close", () => this.#fail(lost(undefined)))
      .resume(); // whoever made the transport may have paused it
    if (options.signal.aborted) onAbort();
  }

  /** Settles when the guest has answered, or never will on this connection. */
  get greeted(): Promise<void> {
    return this.#greeting.promise;
  }

  /** Why the connection ended. Never rejects. */
  get closed(): Promise<PlatformError> {
    return this.#closing.promise;
  }

  get welcome(): Welcome {
    if (this.#welcome === undefined) throw new PlatformError("AGENT_UNREACHABLE", "The guest agent has not answered yet");
    return this.#welcome;
  }

  /** When the guest was last heard of, in boot time. */
  get heardMs(): number {
    return this.#heardMs;
  }

  /** Opens a stream with its first bytes, which go into OPEN when they fit. */
  openStream(request: Uint8Array): ChannelStream {
    if (this.#failure !== undefined) throw this.#failure;
    this.#lastStream += 1;
    const stream = new ChannelStream(this.#lastStream, this.#port);
    this.#streams.set(stream.id, stream);
    this.#send(FRAME_TYPE.open, stream.id, 0, request);
    return stream;
  }

  /** Milliseconds until the agent answered. */
  async ping(options: { readonly signal: AbortSignal }): Promise<number> {
    options.signal.throwIfAborted();
    if (this.#failure !== undefined) throw this.#failure;
    const number = (this.#lastPing += 1);
    const startMs = this.#clock.bootMs();
    const pong = Promise.withResolvers<void>();
    const onAbort = (): void => pong.reject(options.signal.reason as Error); // reasons are errors here
    options.signal.addEventListener("abort", onAbort, { once: true });
    this.#pongs.set(number, pong.resolve);
    this.#send(FRAME_TYPE.ping, 0, number, EMPTY);
    try {
      const failure = await Promise.race([pong.promise, this.#closing.promise]);
      if (failure !== undefined) throw failure;
      return this.#clock.bootMs() - startMs;
    } finally {
      this.#pongs.delete(number);
      options.signal.removeEventListener("abort", onAbort);
    }
  }

  /** Ends the connection at once. Open streams fail with `reason`. */
  destroy(reason: PlatformError = lost(undefined)): void {
    this.#fail(reason);
  }

  #greet(options: ChannelOptions, done: () => void): () => void {
    const hello = Buffer.from(JSON.stringify({ version: PROTOCOL_VERSION, sessionId: options.sessionId, token: options.token }));
    let cancel: () => void = () => undefined;
    const send = (delayMs: number): void => {
      if (this.#transport.writableLength < MAX_WAITING_BYTES) this.#send(FRAME_TYPE.hello, 0, 0, hello);
      cancel = options.clock.schedule(delayMs, () => send(Math.min(delayMs * 2, LAST_HELLO_MS)));
    };
    send(FIRST_HELLO_MS);
    return () => {
      cancel();
      done();
    };
  }

  #onBytes(chunk: Buffer): void {
    if (this.#failure !== undefined) return;
    this.#corked = true; // what the frames make us send goes out together
    try {
      this.#reader.push(chunk);
      for (let frame = this.#reader.next(); frame !== undefined; frame = this.#reader.next()) {
        if (frame.epoch === this.#epoch) this.#onFrame(frame);
      }
    } catch (error) {
      this.#fail(
        error instanceof PlatformError
          ? error
          : new PlatformError("AGENT_PROTOCOL", "The guest agent broke the protocol", { cause: error }),
      );
    } finally {
      this.#corked = false;
      this.#flush();
    }
  }

  #onFrame(frame: Frame): void {
    this.#heardMs = this.#clock.bootMs();
    if (this.#welcome === undefined) return this.#onGreetingFrame(frame);
    const stream = this.#streams.get(frame.stream);
    switch (frame.type) {
      case FRAME_TYPE.data:
        return require(stream?.onData(frame.offset, frame.payload), "stream data out of order or beyond the window");
      case FRAME_TYPE.fin:
        return require(stream?.onFin(frame.offset), "a stream's end out of order");
      case FRAME_TYPE.window:
        return require(stream?.onWindow(frame.offset), "a window beyond what was sent");
      case FRAME_TYPE.reset:
        return stream?.fail(parseFailure(frame.payload));
      case FRAME_TYPE.ping:
        return this.#send(FRAME_TYPE.pong, 0, frame.offset, EMPTY);
      case FRAME_TYPE.pong:
        return this.#pongs.get(frame.offset)?.();
      default:
        return; // WELCOME again, or a type of a later version
    }
  }

  #onGreetingFrame(frame: Frame): void {
    if (frame.type === FRAME_TYPE.refused) throw parseFailure(frame.payload);
    if (frame.type !== FRAME_TYPE.welcome) return;
    this.#welcome = parseWelcome(frame.payload);
    this.#reader.setStrict();
    this.#stopGreeting();
    this.#greeting.resolve();
  }

  #send(type: number, stream: number, offset: number, payload: Uint8Array): void {
    if (this.#failure !== undefined) return;
    this.#transport.write(encodeFrame({ type, epoch: this.#epoch, stream, offset, payload }));
  }

  /** Lets each stream send a frame a turn, until the transport says stop. */
  #flush(): void {
    if (this.#corked || this.#failure !== undefined || this.#welcome === undefined) return;
    const transport = this.#transport;
    transport.cork();
    while (!transport.writableNeedDrain) {
      const stream = this.#nextSender();
      if (stream === undefined) break;
      const piece = stream.takePiece();
      if (piece.bytes !== undefined) this.#send(FRAME_TYPE.data, stream.id, piece.offset, piece.bytes);
      if (piece.fin) this.#send(FRAME_TYPE.fin, stream.id, piece.offset, EMPTY);
    }
    transport.uncork();
  }

  #nextSender(): ChannelStream | undefined {
    let first: ChannelStream | undefined;
    for (const stream of this.#streams.values()) {
      if (!stream.hasToSend) continue;
      if (stream.id > this.#turn) {
        this.#turn = stream.id;
        return stream;
      }
      first ??= stream;
    }
    if (first !== undefined) this.#turn = first.id;
    return first;
  }

  #fail(error: PlatformError): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.#stopGreeting?.(); // a transport may fail inside the constructor
    this.#greeting.reject(error);
    this.#transport.destroy();
    for (const stream of [...this.#streams.values()]) stream.fail(error);
    this.#closing.resolve(error);
  }
}

/** A stream that is unknown was given up by us a moment ago: its frames mean nothing. */
function require(kept: boolean | undefined, what: string): void {
  if (kept === false) throw new PlatformError("AGENT_PROTOCOL", `The guest agent broke the protocol: ${what}`);
}

function lost(cause: Error | undefined): PlatformError {
  return new PlatformError("AGENT_UNREACHABLE", "The connection to the guest agent was lost", cause === undefined ? {} : { cause });
}

/** Largest request that travels in OPEN. */
export const MAX_OPEN_BYTES = MAX_FRAME_PAYLOAD_BYTES;

/**
 * Requests to a guest over whatever connection there is now.
 *
 * A request waits for the connection. One that may be repeated without harm is sent again when the connection breaks
 * under it, as long as the caller's signal allows; any other fails with `AGENT_UNREACHABLE`.
 */
import { isPlatformError, PlatformError, type CallOptions } from "@fluxvm/core";
import { GuestChannel, MAX_OPEN_BYTES, type ChannelStream, type GuestLink } from "@fluxvm/guest-channel";
import { encodeMessage, MAX_MESSAGE_BYTES, MESSAGE_KIND, MessageReader } from "./message.ts";
import { parseReply, type Reply } from "./reply.ts";

export interface GuestRequest {
  readonly op: string;
  readonly [field: string]: unknown;
}

export interface OpenCall {
  readonly channel: GuestChannel;
  readonly stream: ChannelStream;
  readonly messages: MessageReader;
  /** The first message. */
  readonly reply: Reply;
  /** Stops watching the caller's signal; the stream is the caller's to end. */
  release(): void;
}

const MAX_ATTEMPTS = 100;

export class GuestCaller {
  readonly #link: GuestLink;

  constructor(link: GuestLink) {
    this.#link = link;
  }

  get link(): GuestLink {
    return this.#link;
  }

  /** One question, one answer. `repeatable` is the default. */
  async ask(request: GuestRequest, options: CallOptions & { readonly repeatable?: boolean }): Promise<Reply> {
    const call =
      options.repeatable === false
        ? await this.open(request, options, { ends: true })
        : await this.openRepeatable(request, options, { ends: true });
    call.release();
    return call.reply;
  }

  /** `open`, again on the next connection when one breaks before the reply. */
  async openRepeatable(request: GuestRequest, options: CallOptions, how: { readonly ends: boolean } = { ends: false }): Promise<OpenCall> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.open(request, options, how);
      } catch (error) {
        const mayRepeat = attempt < MAX_ATTEMPTS && this.#link.state !== "closed" && !options.signal.aborted;
        if (!mayRepeat || !isPlatformError(error, "AGENT_UNREACHABLE")) throw error;
      }
    }
  }

  /**
   * Sends a request and waits for its first reply; the stream stays open unless `ends`. When the caller's signal fires
   * the stream is reset, before the reply or, until `release`, after it.
   */
  async open(request: GuestRequest, options: CallOptions, how: { readonly ends: boolean } = { ends: false }): Promise<OpenCall> {
    const channel = await this.#link.channel(options);
    const body = Buffer.from(JSON.stringify(request));
    if (body.length > MAX_MESSAGE_BYTES) {
      throw new PlatformError(
        "REQUEST_INVALID",
        `The request is too long for the guest: ${body.length} bytes, at most ${MAX_MESSAGE_BYTES}`,
      );
    }
    const fits = body.length <= MAX_OPEN_BYTES;
    const stream = channel.openStream(fits ? body : new Uint8Array(0));
    const onAbort = (): void => stream.reset(options.signal.reason as Error); // reasons are errors here
    options.signal.addEventListener("abort", onAbort, { once: true });
    const release = (): void => options.signal.removeEventListener("abort", onAbort);
    try {
      if (!fits) await stream.write(encodeMessage(MESSAGE_KIND.json, body));
      if (how.ends) stream.end();
      const messages = new MessageReader(stream);
      const reply = parseReply(await messages.next());
      return { channel, stream, messages, reply, release };
    } catch (error) {
      release();
      options.signal.throwIfAborted();
      if (!how.ends) stream.end();
      throw this.onFailure(channel, stream, error);
    }
  }

  /** A guest that breaks the protocol loses the connection. Gives the error back. */
  onFailure(channel: GuestChannel, stream: ChannelStream, error: unknown): unknown {
    if (isPlatformError(error, "AGENT_PROTOCOL")) {
      channel.destroy(error);
      return error;
    }
    return error;
  }
}

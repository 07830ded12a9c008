/**
 * Files in one guest. Content is streamed: neither side holds a file. Reading and writing go over one connection and
 * fail with it; a written file appears whole or not at all.
 */
import type { CallOptions } from "@fluxvm/core";
import {
  parseDiskUsage,
  parseFileEvent,
  parseFileStat,
  type GuestDiskUsage,
  type GuestFileEvent,
  type GuestFileStat,
} from "./file-types.ts";
import type { GuestCaller, OpenCall } from "./guest-caller.ts";
import { encodeJson, encodeMessage, MESSAGE_KIND, violation } from "./message.ts";
import { parseReply, Reply } from "./reply.ts";

const PIECE_BYTES = 64 * 1024;
const MAX_BATCH_ENTRIES = 1024;

export interface WriteAttributes {
  readonly mode?: number | undefined;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  readonly createParents?: boolean | undefined;
  /** Adds to the end of the file in place; not atomic. */
  readonly append?: boolean | undefined;
}

export class FileClient {
  readonly #caller: GuestCaller;

  constructor(caller: GuestCaller) {
    this.#caller = caller;
  }

  /** The file's bytes, as fast as they are taken. Leave the loop to stop. */
  async read(
    path: string,
    range: { readonly offset?: number | undefined; readonly length?: number | undefined },
    options: CallOptions,
  ): Promise<{ readonly stat: GuestFileStat; readonly content: AsyncIterable<Uint8Array> }> {
    const call = await this.#caller.openRepeatable({ op: "file.read", path, offset: range.offset, length: range.length }, options);
    call.stream.end();
    return { stat: parseFileStat(call.reply.object("stat")), content: this.#content(call) };
  }

  /** Writes a file whole. @returns what it is now */
  async write(
    path: string,
    content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    attributes: WriteAttributes,
    options: CallOptions,
  ): Promise<GuestFileStat> {
    const call = await this.#caller.openRepeatable({ op: "file.write", path, ...attributes }, options);
    // The guest may refuse in the middle: then its reply comes while we still send.
    const answer = call.messages.next();
    answer.catch(() => undefined); // awaited below
    try {
      const total = await this.#send(call, content, answer);
      if (total !== undefined) {
        await call.stream.write(encodeJson({ end: total }));
        call.stream.end();
      }
      const reply = parseReply(await answer);
      return parseFileStat(reply.object("stat"));
    } catch (error) {
      options.signal.throwIfAborted();
      call.stream.reset();
      throw this.#caller.onFailure(call.channel, call.stream, error);
    } finally {
      call.release();
    }
  }

  /** About the path itself, or with `follow` what a link points to. */
  async stat(path: string, options: CallOptions & { readonly follow?: boolean }): Promise<GuestFileStat> {
    return parseFileStat((await this.#caller.ask({ op: "file.stat", path, follow: options.follow }, options)).object("stat"));
  }

  /** A directory's entries in batches, in no order. */
  async *list(path: string, options: CallOptions): AsyncGenerator<readonly GuestFileStat[], void, undefined> {
    const call = await this.#caller.openRepeatable({ op: "file.list", path }, options);
    call.stream.end();
    for await (const reply of this.#replies(call)) {
      if (reply.has("end")) return;
      yield reply.list("entries", MAX_BATCH_ENTRIES, (item) => parseFileStat(new Reply(item)));
    }
    throw violation("a list without an end");
  }

  /** Changes of a directory's entries or of one file, until the caller stops. */
  async *watch(path: string, options: CallOptions): AsyncGenerator<readonly GuestFileEvent[], void, undefined> {
    const call = await this.#caller.open({ op: "file.watch", path }, options);
    for await (const reply of this.#replies(call)) yield reply.list("events", 65_536, parseFileEvent);
  }

  async makeDirectory(
    path: string,
    request: { readonly parents?: boolean | undefined; readonly mode?: number | undefined },
    options: CallOptions,
  ): Promise<void> {
    await this.#caller.ask({ op: "file.mkdir", path, ...request }, { signal: options.signal, repeatable: request.parents === true });
  }

  async rename(from: string, to: string, options: CallOptions & { readonly noReplace?: boolean }): Promise<void> {
    await this.#caller.ask({ op: "file.rename", from, to, noReplace: options.noReplace }, { signal: options.signal, repeatable: false });
  }

  async remove(path: string, request: { readonly recursive?: boolean | undefined }, options: CallOptions): Promise<void> {
    await this.#caller.ask({ op: "file.remove", path, ...request }, { signal: options.signal, repeatable: false });
  }

  /** Space of the file system that holds `path`. */
  async usage(path: string, options: CallOptions): Promise<GuestDiskUsage> {
    return parseDiskUsage(await this.#caller.ask({ op: "df", path }, options));
  }

  /** @returns bytes sent, or nothing when the guest answered before the end */
  async #send(
    call: OpenCall,
    content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    answer: Promise<unknown>,
  ): Promise<number | undefined> {
    let answered = false;
    const early = answer.then(
      () => void (answered = true),
      () => void (answered = true),
    );
    let total = 0;
    for await (const chunk of content) {
      for (let at = 0; at < chunk.length; at += PIECE_BYTES) {
        const piece = chunk.subarray(at, at + PIECE_BYTES);
        await Promise.race([call.stream.write(encodeMessage(MESSAGE_KIND.file, piece)), early]);
        if (answered) return undefined;
        total += piece.length;
      }
    }
    return total;
  }

  async *#content(call: OpenCall): AsyncGenerator<Uint8Array, void, undefined> {
    let received = 0;
    let over = false;
    try {
      for (;;) {
        const message = await call.messages.next();
        if (message?.kind !== MESSAGE_KIND.file) {
          if (parseReply(message).count("end") !== received) throw violation("a file of another length than its bytes");
          over = true;
          return;
        }
        received += message.body.length;
        yield message.body;
      }
    } catch (error) {
      over = true;
      throw this.#caller.onFailure(call.channel, call.stream, error);
    } finally {
      call.release();
      if (!over) call.stream.reset();
    }
  }

  /** JSON messages until the stream ends; reset when the loop is left early. */
  async *#replies(call: OpenCall): AsyncGenerator<Reply, void, undefined> {
    let over = false;
    try {
      for (let message = await call.messages.next(); message !== undefined; message = await call.messages.next()) yield parseReply(message);
      over = true;
    } catch (error) {
      over = true;
      throw this.#caller.onFailure(call.channel, call.stream, error);
    } finally {
      call.release();
      if (!over) call.stream.reset();
    }
  }
}

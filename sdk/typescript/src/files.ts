/** Files of a guest, streamed both ways without a size limit and without being held in memory. */
import { Readable } from "node:stream";
import { PlatformError, type FileEvent, type FileStat } from "@fluxvm/contracts";
import { parseServerSentEvents } from "./server-sent-events.ts";
import type { Transport } from "./transport.ts";
import { vmPath, type Call } from "./vms.ts";

export interface GuestFile {
  readonly stat: FileStat;
  /** The bytes as they come. Consume it, or `destroy()` it. */
  readonly content: Readable;
}

export interface WriteFileOptions extends Call {
  readonly mode?: number | undefined;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  /** Make missing parent directories. */
  readonly parents?: boolean | undefined;
}

export type FileContent = string | Uint8Array | AsyncIterable<Uint8Array>;

export interface FileClient {
  read(
    vm: string,
    path: string,
    options?: Call & { readonly offset?: number | undefined; readonly length?: number | undefined },
  ): Promise<GuestFile>;
  /** Atomic: the file has its new content or its old one. */
  write(vm: string, path: string, content: FileContent, options?: WriteFileOptions): Promise<FileStat>;
  stat(vm: string, path: string, options?: Call): Promise<FileStat>;
  list(vm: string, path: string, options?: Call): Promise<readonly FileStat[]>;
  makeDirectory(
    vm: string,
    path: string,
    options?: Call & { readonly parents?: boolean | undefined; readonly mode?: number | undefined },
  ): Promise<void>;
  rename(vm: string, from: string, to: string, options?: Call): Promise<void>;
  remove(vm: string, path: string, options?: Call & { readonly recursive?: boolean | undefined }): Promise<void>;
  /** Changes as they happen. Leaving the loop ends the watch. */
  watch(vm: string, path: string, options?: Call): AsyncIterable<FileEvent>;
}

export function createFileClient(transport: Transport): FileClient {
  return {
    async read(vm, path, { offset, length, signal } = {}) {
      const reply = await transport.stream("GET", vmPath(vm, "/files"), { query: { path, offset, length }, signal });
      try {
        return { stat: parseStatHeader(reply.headers["x-fluxvm-file-stat"]), content: reply.body };
      } catch (error) {
        reply.body.destroy();
        throw error;
      }
    },
    async write(vm, path, content, options = {}) {
      const { mode, uid, gid, parents, signal } = options;
      const source = createBodySource(content);
      try {
        return await transport.json<FileStat>("PUT", vmPath(vm, "/files"), {
          query: { path, mode, uid, gid, parents },
          body: source.body,
          signal,
        });
      } catch (error) {
        throw source.failure() ?? error;
      }
    },
    stat: async (vm, path, options = {}) =>
      await transport.json<FileStat>("GET", vmPath(vm, "/files/stat"), { query: { path }, ...options }),
    async list(vm, path, options = {}) {
      const reply = await transport.json<{ items: FileStat[] }>("GET", vmPath(vm, "/files/list"), { query: { path }, ...options });
      return reply.items;
    },
    async makeDirectory(vm, path, { parents, mode, signal } = {}) {
      await transport.empty("POST", vmPath(vm, "/files/mkdir"), { json: { path, parents, mode }, signal });
    },
    async rename(vm, from, to, { signal } = {}) {
      await transport.empty("POST", vmPath(vm, "/files/rename"), { json: { from, to }, signal });
    },
    async remove(vm, path, { recursive, signal } = {}) {
      await transport.empty("DELETE", vmPath(vm, "/files"), { query: { path, recursive }, signal });
    },
    watch: (vm, path, options = {}) => watchFiles(transport, { vm, path, ...options }),
  };
}

interface BodySource {
  readonly body: Readable | Uint8Array;
  /** What the caller's own iterable threw, which is not the connection's fault. */
  failure(): Error | undefined;
}

function createBodySource(content: FileContent): BodySource {
  if (typeof content === "string") return { body: Buffer.from(content), failure: () => undefined };
  if (content instanceof Uint8Array) return { body: content, failure: () => undefined };
  let failure: Error | undefined;
  const watched = async function* (): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      yield* content;
    } catch (error) {
      failure = error instanceof Error ? error : new Error(String(error));
      throw failure;
    }
  };
  return { body: Readable.from(watched(), { objectMode: false }), failure: () => failure };
}

function parseStatHeader(value: string | string[] | undefined): FileStat {
  try {
    return JSON.parse(String(value)) as FileStat; // the header's documented content
  } catch (cause) {
    throw new PlatformError("DAEMON_PROTOCOL", "The daemon sent a file without saying what it is", { cause });
  }
}

interface Watch extends Call {
  readonly vm: string;
  readonly path: string;
}

async function* watchFiles(transport: Transport, { vm, path, signal }: Watch): AsyncGenerator<FileEvent, void, undefined> {
  const reply = await transport.stream("GET", vmPath(vm, "/files/watch"), { query: { path }, accept: "text/event-stream", signal });
  try {
    for await (const event of parseServerSentEvents(reply.body)) yield JSON.parse(event) as FileEvent; // the route's documented events
  } catch (error) {
    throw transport.translate(error, signal);
  } finally {
    reply.body.destroy();
  }
}

/**
 * A request body of any size as a sequence of chunks, read only as fast as they are taken.
 *
 * When the work fails while the client still sends, the reply goes out at once and the rest is drained for a moment,
 * because a connection reset would take the reply with it on its way.
 */
import type { IncomingMessage } from "node:http";
import { PlatformError } from "@fluxvm/core";
import { getCallerSignal, type ApiContext, type Exchange } from "./context.ts";

const LINGER_MS = 2000;

export async function receiveUpload<T>(
  context: ApiContext,
  { request, reply }: Exchange,
  work: (content: AsyncIterable<Uint8Array>, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const signal = AbortSignal.any([getCallerSignal({ request, reply }), context.stopping]);
  try {
    return await work(readChunks(request.raw), signal);
  } catch (error) {
    if (!request.raw.readableEnded) {
      reply.header("connection", "close");
      linger(context, request.raw);
    }
    throw error;
  }
}

async function* readChunks(source: IncomingMessage): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    for await (const chunk of source.iterator({ destroyOnReturn: false })) yield chunk as Buffer; // no encoding is set
  } catch (cause) {
    throw new PlatformError("REQUEST_CANCELLED", "The upload ended early", { cause });
  }
  if (!source.readableEnded) throw new PlatformError("REQUEST_CANCELLED", "The upload ended early");
}

function linger(context: ApiContext, source: IncomingMessage): void {
  source.on("error", () => undefined);
  source.resume();
  const cancel = context.clock.schedule(LINGER_MS, () => source.destroy());
  source.once("close", cancel);
}

/** Counts what flows past and shows it. */
import type { ProgressDisplay } from "../output/progress.ts";

export interface ByteCount {
  total(): number;
  through(source: AsyncIterable<unknown>): AsyncGenerator<Uint8Array, void, undefined>;
}

export function countBytes(progress: ProgressDisplay, totalBytes: number | undefined): ByteCount {
  let doneBytes = 0;
  return {
    total: () => doneBytes,
    async *through(source) {
      for await (const chunk of source) {
        const bytes = chunk as Uint8Array; // byte streams without an encoding
        yield bytes;
        doneBytes += bytes.byteLength;
        progress.update({ doneBytes, totalBytes });
      }
    },
  };
}

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseServerSentEvents } from "./server-sent-events.ts";

async function parseInPieces(text: string, cuts: readonly number[]): Promise<string[]> {
  const bytes = Buffer.from(text);
  const edges = [0, ...cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b), bytes.length];
  const pieces = edges.slice(1).map((end, i) => bytes.subarray(edges[i], end));
  const events: string[] = [];
  for await (const event of parseServerSentEvents(
    (async function* () {
      yield* pieces;
    })(),
  ))
    events.push(event);
  return events;
}

test("events are read wherever the stream is cut", async () => {
  const text = ': comment\r\n\r\nevent: x\ndata: {"ä":1}\n\ndata:two\ndata: lines\n\nid: 3\n\ndata: unfinished';
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(200), { maxLength: 8 }), async (cuts) => {
      assert.deepEqual(await parseInPieces(text, cuts), ['{"ä":1}', "two\nlines"]);
    }),
  );
});

test("an endless line is refused", async () => {
  await assert.rejects(parseInPieces(`data: ${"x".repeat(2_000_000)}`, []), /too long/);
});

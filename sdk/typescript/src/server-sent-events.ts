/** The `data` of each event of a `text/event-stream` body (WHATWG HTML, section 9.2). Comments and other fields are skipped. */
import { StringDecoder } from "node:string_decoder";

/** An event longer than this is refused: nothing of ours comes near. */
const MAX_EVENT_CHARS = 1_048_576;

export async function* parseServerSentEvents(body: AsyncIterable<unknown>): AsyncGenerator<string, void, undefined> {
  const decoder = new StringDecoder("utf8");
  let pending = "";
  let data: string[] = [];
  for await (const chunk of body) {
    pending += decoder.write(chunk as Buffer); // undici's bodies yield buffers
    const lines = pending.split(/\r\n|\n|\r(?!$)/);
    pending = lines.pop() ?? "";
    if (pending.length > MAX_EVENT_CHARS) throw new Error("event too long");
    for (const line of lines) {
      if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
      if (line !== "" || data.length === 0) continue;
      yield data.join("\n");
      data = [];
    }
  }
}

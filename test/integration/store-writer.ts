/** Commits without end and prints each acknowledgement, for `store.int.test.ts` to kill: `<writer> <number>` a line. */
import { openSqliteStore } from "@fluxvm/store";
import { createNullLogger } from "@fluxvm/telemetry";

const [, , directory = "", writers = "8"] = process.argv;
const store = await openSqliteStore({ directory, logger: createNullLogger() });

async function write(writer: number): Promise<never> {
  for (let number = 1; ; number += 1) {
    await store.commit([
      { kind: "put", collection: "vms", key: `w${writer}`, value: number },
      { kind: "put", collection: "leases", key: `w${writer}`, value: number },
      { kind: "event", type: "t", subject: `w${writer}`, wallMs: number, data: number },
    ]);
    process.stdout.write(`${writer} ${number}\n`);
  }
}

await Promise.all(Array.from({ length: Number(writers) }, async (_, writer) => await write(writer)));

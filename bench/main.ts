/** `npm run bench -- NAME [--n N]`: runs one benchmark; without a name lists them. */
import { parseArgs } from "node:util";
import { runBootBench } from "./boot.ts";
import { runExecBench } from "./exec.ts";

const BENCHES: Readonly<Record<string, (options: { readonly n: number }) => Promise<void>>> = {
  boot: runBootBench,
  exec: runExecBench,
};

const { values, positionals } = parseArgs({ allowPositionals: true, options: { n: { type: "string", default: "10" } } });
const bench = BENCHES[positionals[0] ?? ""];
if (bench === undefined) {
  process.stderr.write(`usage: npm run bench -- NAME [--n N]\nbenches: ${Object.keys(BENCHES).join(", ")}\n`);
  process.exitCode = 2;
} else {
  await bench({ n: Number(values.n) });
}

/** `npm run quickstart`, the first thing a newcomer does, without its setup: it tells its story, and a second run finds what the first made. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { it } from "node:test";
import { ROOT } from "../fixtures/artefacts.ts";

const STEPS = [
  "start the daemon",
  "get a guest kernel",
  "make the image debian:",
  "boot a VM to its first command",
  "run a command with live output",
  "copy a file in and out",
  "let a 2 s TTL delete it",
  "prove that nothing is left",
  "stop the daemon",
  "total",
];

async function runQuickstart(): Promise<string> {
  const child = spawn(process.execPath, [join(ROOT, "tools/quickstart/main.ts")], { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  let errors = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (errors += text));
  const code = await new Promise<number | null>((resolve) => {
    child.once("close", resolve);
  });
  assert.equal(code, 0, output + errors);
  return output;
}

it("takes a newcomer through the life of a VM, and does not make again what is there", { timeout: 900_000 }, async () => {
  await runQuickstart();
  const second = await runQuickstart();
  assert.doesNotMatch(second, /^\$ fluxctl (kernel|image) import/m, "kernel and image are there from the first run");
  assert.match(second, /^\$ fluxctl vm create quickstart .*--ready$/m);
  assert.match(second, /Linux[\s\S]*line 1[\s\S]*line 2[\s\S]*line 3/);
  assert.match(second, /there and back: identical/);
  assert.match(second, /NAME[\s\S]*quickstart/);
  const table = second.slice(second.indexOf("\nstep"));
  for (const step of STEPS) assert.match(table, new RegExp(`^${step}.* \\d+\\.\\d\\d$`, "m"));
  assert.match(table, /^accelerator: (kvm|tcg)$/m);
});

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { systemRandom, newId } from "@fluxvm/core";
import { systemClock } from "@fluxvm/host";
import { createGuestClient, type ExecAttachment, type GuestAgent } from "./index.ts";
import { startTestAgent, type TestAgent } from "./testing/index.ts";

const signal = AbortSignal.timeout(120_000);

async function collect(attachment: ExecAttachment) {
  const out = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  for await (const item of attachment.output) {
    if (item.kind === "data") out[item.stream].push(item.data);
    if (item.kind === "exit") return { stdout: Buffer.concat(out.stdout).toString(), stderr: Buffer.concat(out.stderr).toString(), exit: item.exit };
  }
  throw new Error("no exit");
}

describe("exec", () => {
  let agent: TestAgent;
  let client: GuestAgent;
  before(async () => {
    agent = await startTestAgent();
    client = createGuestClient({ endpoint: { kind: "unix", path: agent.path }, token: agent.token, clock: systemClock, random: systemRandom });
    await client.waitReady({ signal });
  });
  after(async () => {
    await client.close();
    await agent.stop();
  });

  test("stdout, stderr and exit code", async () => {
    const a = await client.exec.startAttached({ execId: newId("exec", systemRandom), argv: ["sh", "-c", "echo out; echo err >&2; exit 3"] }, { signal });
    assert.deepEqual(await collect(a), { stdout: "out\n", stderr: "err\n", exit: { code: 3, signal: undefined, timedOut: false } });
  });
});

/** What breaks between host and guest must not show in an exec's bytes: against the real agent, over a Unix socket. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { connect, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { createSeededRandom, newId, systemRandom } from "@fluxvm/core";
import { systemClock } from "@fluxvm/host";
import { createGuestClient, type GuestAgent } from "./index.ts";
import { collectExec, startTestAgent, type TestAgent } from "./testing/index.ts";

const call = { signal: AbortSignal.timeout(240_000) };
let agent: TestAgent;

before(async () => {
  agent = await startTestAgent();
});
after(async () => {
  await agent.stop();
});

function newClient(path = agent.path, token = agent.token): GuestAgent {
  return createGuestClient({
    endpoint: { kind: "unix", path },
    token,
    clock: systemClock,
    random: systemRandom,
    pingAfterMs: 500,
    pingTimeoutMs: 500,
  });
}

/** Every 8 bytes hold their own number: a lost, repeated or swapped byte shows. */
const NUMBERED = `
import sys
w = sys.stdout.buffer.write
for block in range(${100 * 1024 * 1024} // 65536):
    w(b"".join(b"%07x\\n" % (block * 8192 + i) for i in range(8192)))
`;

function expectedDigest(): string {
  const hash = createHash("sha256");
  for (let block = 0; block < (100 * 1024 * 1024) / 65_536; block += 1) {
    let text = "";
    for (let i = 0; i < 8192; i += 1) text += `${(block * 8192 + i).toString(16).padStart(7, "0")}\n`;
    hash.update(text);
  }
  return hash.digest("hex");
}

test("100 MB of numbered output across 50 killed clients are byte-identical", async () => {
  const execId = newId("exec", systemRandom);
  const hash = createHash("sha256");
  let offset = 0;
  let kills = 0;
  let exit: { readonly code?: number | undefined } | undefined;
  while (exit === undefined) {
    const client = newClient();
    await client.exec.start({ execId, argv: ["python3", "-c", NUMBERED] }, call);
    const attachment = await client.exec.attach(execId, { stdout: offset, stderr: 0 }, call);
    // Each client is destroyed at a place of its own, in the middle of whatever is under way.
    const stopAt = kills < 50 ? offset + 1_000_000 + ((kills * 7919) % 1_900_000) : Number.POSITIVE_INFINITY;
    for await (const item of attachment.output) {
      if (item.kind === "exit") exit = item.exit;
      if (item.kind !== "data") continue;
      assert.equal(item.stream, "stdout", Buffer.from(item.data).toString());
      hash.update(item.data);
      offset += item.data.length;
      if (kills % 2 === 0) attachment.ack({ stdout: offset, stderr: 0 });
      if (offset >= stopAt) break;
      if (kills % 2 === 1 && offset % 3 === 0) attachment.ack({ stdout: offset - 1000 > 0 ? offset - 1000 : 0, stderr: 0 });
    }
    client.destroy();
    if (exit === undefined) kills += 1;
  }
  assert.equal(kills, 50);
  assert.equal(offset, 100 * 1024 * 1024);
  assert.equal(exit.code, 0);
  assert.equal(hash.digest("hex"), expectedDigest());
});

/** Stands between client and agent as a virtio-serial port does, and mistreats the bytes. */
class BadLine {
  readonly path: string;
  readonly #server: Server;
  readonly #pairs = new Set<readonly [Socket, Socket]>();
  onOpen: (toAgent: Socket, toClient: Socket) => void = () => undefined;

  constructor(path: string, target: string) {
    this.path = path;
    this.#server = createServer((toClient) => {
      const toAgent = connect({ path: target });
      const pair = [toClient, toAgent] as const;
      this.#pairs.add(pair);
      for (const socket of pair) {
        socket.on("error", () => undefined); // the other end shows it
        socket.on("close", () => {
          toClient.destroy();
          toAgent.destroy();
          this.#pairs.delete(pair);
        });
      }
      this.onOpen(toAgent, toClient);
      toClient.pipe(toAgent);
      toAgent.pipe(toClient);
    });
  }

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(this.path, resolve));
  }

  cut(): void {
    for (const [toClient, toAgent] of this.#pairs) {
      toClient.destroy();
      toAgent.destroy();
    }
  }

  /** Swallows everything, without an end: a paused guest. */
  freeze(): void {
    for (const [toClient, toAgent] of this.#pairs) {
      toClient.unpipe(toAgent).resume();
      toAgent.unpipe(toClient).resume();
    }
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

async function withBadLine(name: string, body: (line: BadLine) => Promise<void>): Promise<void> {
  const line = new BadLine(join(agent.directory, `${name}.sock`), agent.path);
  await line.listen();
  try {
    await body(line);
  } finally {
    await line.close();
  }
}

test("one attachment outlives its connections: output and input, each byte once", async () => {
  await withBadLine("cuts", async (line) => {
    const client = newClient(line.path);
    const attachment = await client.exec.startAttached({ execId: newId("exec", systemRandom), argv: ["cat"], stdin: true }, call);
    const total = 6_000_000;
    const expected = createHash("sha256");
    const actual = createHash("sha256");
    const writing = (async () => {
      let offset = 0;
      for (let i = 0; offset < total; i += 1) {
        const bytes = Buffer.from(`${i} `.repeat(2000)).subarray(0, Math.min(9000, total - offset));
        expected.update(bytes);
        await attachment.writeStdin(offset, bytes);
        offset += bytes.length;
      }
      await attachment.endStdin(offset);
    })();
    let received = 0;
    let cuts = 0;
    for await (const item of attachment.output) {
      if (item.kind === "exit") assert.equal(item.exit.code, 0);
      if (item.kind !== "data") continue;
      actual.update(item.data);
      received += item.data.length;
      attachment.ack({ stdout: received, stderr: 0 });
      if (received > (cuts + 1) * 400_000) {
        cuts += 1;
        line.cut();
      }
    }
    await writing;
    assert.equal(received, total);
    assert.ok(cuts >= 10, `${cuts} cuts`);
    assert.equal(actual.digest("hex"), expected.digest("hex"));
    await client.close();
  });
});

test("garbage and half frames before the greeting are skipped on both sides", async () => {
  await withBadLine("garbage", async (line) => {
    const random = createSeededRandom(7);
    let opened = 0;
    line.onOpen = (toAgent, toClient) => {
      opened += 1;
      const junk = Buffer.from(random.bytes(50 + (opened % 5) * 5000));
      // A header that announces 30 000 bytes which never come, as a reopened port leaves it behind.
      const half = Buffer.from("46584d310500307501000000010000000000000000000000deadbeef", "hex");
      toAgent.write(Buffer.concat([junk, half, junk.subarray(0, 400)]));
      toClient.write(Buffer.concat([junk.subarray(0, 3000), Buffer.from("FXM1FXM"), half, Buffer.from(random.bytes(100))]));
    };
    for (let i = 0; i < 10; i += 1) {
      const client = newClient(line.path);
      await client.waitReady(call);
      assert.equal(
        (await collectExec(await client.exec.startAttached({ execId: newId("exec", systemRandom), argv: ["echo", "through"] }, call)))
          .stdout,
        "through\n",
      );
      await client.close();
    }
    assert.ok(opened >= 10);
  });
});

test("a guest that falls silent is noticed, and found again", async () => {
  await withBadLine("silence", async (line) => {
    const client = newClient(line.path);
    await client.waitReady(call);
    const states: string[] = [];
    const back = new Promise<void>((resolve) => {
      client.subscribe((state) => {
        states.push(state);
        if (state === "ready") resolve();
      });
    });
    const attachment = await client.exec.startAttached(
      { execId: newId("exec", systemRandom), argv: ["sh", "-c", "sleep 2; echo awake"] },
      call,
    );
    line.freeze();
    assert.equal((await collectExec(attachment)).stdout, "awake\n");
    await back;
    assert.deepEqual(states, ["lost", "ready"]);
    await client.close();
  });
});

test("a wrong token is refused for good, and nothing is served", async () => {
  const client = newClient(agent.path, "f".repeat(64));
  await assert.rejects(client.waitReady(call), { code: "AGENT_AUTH_FAILED" });
  assert.equal(client.state, "closed");
  await assert.rejects(client.exec.list(call), { code: "AGENT_AUTH_FAILED" });
  await client.close();
});

test("an agent without a token serves nobody", async () => {
  const open = await startTestAgent({ config: { token: "" } });
  try {
    for (const token of ["", "f".repeat(64)]) {
      const client = newClient(open.path, token);
      await assert.rejects(client.waitReady(call), { code: "AGENT_AUTH_FAILED" });
      await client.close();
    }
  } finally {
    await open.stop();
  }
});

test("closing while dialling ends what waits", async () => {
  const client = newClient(join(agent.directory, "nobody.sock"));
  const waiting = client.waitReady(call);
  const closing = client.close();
  await assert.rejects(waiting, { code: "AGENT_UNREACHABLE" });
  await closing;
  assert.equal(client.state, "closed");
});

test("a caller's signal ends its wait alone", async () => {
  const client = newClient(join(agent.directory, "nobody.sock"));
  await assert.rejects(client.waitReady({ signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
  assert.equal(client.state, "connecting");
  await client.close();
});

test("random bytes never stop the agent", async () => {
  const random = createSeededRandom(99);
  for (let i = 0; i < 40; i += 1) {
    const socket = connect({ path: agent.path });
    socket.on("error", () => undefined); // the agent may close it
    socket.write(Buffer.from(random.bytes(20_000)));
    await new Promise<void>((resolve) => socket.end(() => resolve()));
  }
  const client = newClient();
  assert.ok((await client.ping(call)) >= 0);
  await client.close();
});

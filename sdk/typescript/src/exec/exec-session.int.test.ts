import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient, isPlatformError, type Client, type ExecSession } from "../index.ts";
import { startFakeDaemon, type FakeDaemon } from "../testing/index.ts";

async function setUp(t: TestContext): Promise<{ daemon: FakeDaemon; client: Client }> {
  const directory = await mkdtemp(join(tmpdir(), "fluxvm-exec-"));
  const daemon = await startFakeDaemon({ listen: join(directory, "s.sock") });
  daemon.host.addVm("a");
  const client = createClient({ server: daemon.address });
  t.after(async () => {
    for (const exec of daemon.host.requireVm("a").execs.values()) assert.deepEqual(exec.violations, []);
    await client.close();
    await daemon.stop();
    await rm(directory, { recursive: true });
  });
  return { daemon, client };
}

const numbered = (count: number, step = 1): string => Array.from({ length: Math.ceil(count / step) }, (_, i) => `${i * step}\n`).join("");

test("output, exit and acknowledgement of a plain command", async (t) => {
  const { daemon, client } = await setUp(t);
  const session = await client.execs.start("a", { command: ["fail", "3"] });
  const { stdout, stderr, exit } = await session.collect();
  assert.deepEqual([stdout.toString(), stderr.toString(), exit], ["", "it went wrong\n", { code: 3, timed_out: false }]);
  await waitUntil(() => daemon.host.requireExec("a", session.execId).view().stderr_acked === 14);
  assert.equal((await client.execs.get("a", session.execId)).state, "exited");
  await client.execs.remove("a", session.execId);
  assert.deepEqual(await client.execs.list("a"), []);
});

test("megabytes of output stay whole while connections break again and again", async (t) => {
  const { daemon, client } = await setUp(t);
  const count = 300_000;
  const session = await client.execs.start("a", { command: ["numbers", String(count)] });
  const output = { stdout: "", stderr: "" };
  let chunks = 0;
  for await (const chunk of session.output()) {
    output[chunk.stream] += Buffer.from(chunk.data).toString("latin1");
    chunks += 1;
    if (chunks % 4 === 0) daemon.dropExecConnections();
  }
  assert.ok(chunks > 40, `only ${chunks} chunks`);
  assert.equal(output.stdout, numbered(count));
  assert.equal(output.stderr, numbered(count, 10));
  assert.equal((await session.exited).code, 0);
});

test("a killed and restarted daemon costs no byte of input or output", async (t) => {
  const { daemon, client } = await setUp(t);
  const states: string[] = [];
  const session = await client.execs.start("a", { command: ["cat"], stdin: true }, { onConnection: (state) => states.push(state) });
  const sent = numbered(200_000);
  const writing = writeInPieces(session, sent);
  let received = "";
  let restarts = 0;
  for await (const chunk of session.output()) {
    received += Buffer.from(chunk.data).toString("latin1");
    if (received.length > (restarts + 1) * 200_000 && restarts < 4) {
      restarts += 1;
      await daemon.stop();
      await sleep(20);
      await daemon.start();
    }
  }
  await writing;
  assert.equal(received, sent);
  assert.equal(restarts, 4);
  assert.ok(states.filter((state) => state === "lost").length >= 4, states.join());
});

async function writeInPieces(session: ExecSession, text: string): Promise<void> {
  for (let at = 0; at < text.length; at += 7777) assert.equal(await session.writeStdin(text.slice(at, at + 7777)), true);
  session.endStdin();
}

test("input ends after what was written, even if nobody waited for that", async (t) => {
  const { client } = await setUp(t);
  const session = await client.execs.start("a", { command: ["cat"], stdin: true });
  const pieces = Array.from({ length: 5 }, (_, i) => Buffer.alloc(300_000, i));
  const writes = Promise.all(pieces.map(async (piece) => await session.writeStdin(piece)));
  session.endStdin();
  const { stdout } = await session.collect();
  assert.deepEqual([stdout.equals(Buffer.concat(pieces)), await writes], [true, [true, true, true, true, true]]);
  await assert.rejects(
    async () => await (await endedSession(client)).writeStdin("late"),
    (error) => isPlatformError(error, "EXEC_STDIN_ENDED"),
  );
});

/** A session whose command goes on after its input has ended. */
async function endedSession(client: Client): Promise<ExecSession> {
  const session = await client.execs.start("a", { command: ["sleep"], stdin: true });
  session.endStdin();
  return session;
}

test("a reader that stops holds the command back instead of filling memory", async (t) => {
  const { daemon, client } = await setUp(t);
  const session = await client.execs.start("a", { command: ["numbers", "200000"] });
  const output = session.output();
  await output.next();
  const exec = daemon.host.requireExec("a", session.execId);
  await waitUntil(() => exec.view().stdout_bytes > 200_000);
  await sleep(150);
  const { stdout_bytes, stdout_acked } = exec.view();
  assert.ok(stdout_bytes < 300_000, `wrote ${stdout_bytes} bytes unread`);
  assert.equal(stdout_acked, 0);
  let rest = 0;
  for await (const chunk of output) rest += chunk.data.length;
  assert.ok(rest > 1_000_000);
});

test("signals, sizes and a terminal's words arrive", async (t) => {
  const { daemon, client } = await setUp(t);
  const sleeper = await client.execs.start("a", { command: ["sleep"] });
  await sleeper.signal("SIGINT");
  assert.deepEqual((await sleeper.collect()).exit, { signal: "SIGINT", timed_out: false });
  const shell = await client.execs.start("a", { command: ["sh"], stdin: true, tty: { rows: 24, cols: 80 } });
  shell.resize({ rows: 10, cols: 20 });
  await shell.writeStdin("size\n");
  const output = shell.output();
  let text = "";
  const readUntil = async (wanted: string): Promise<void> => {
    while (!text.includes(wanted)) text += Buffer.from((await output.next()).value?.data ?? []).toString();
  };
  await readUntil("10x20");
  daemon.dropExecConnections();
  await shell.writeStdin("exit 4\n");
  for await (const chunk of output) text += Buffer.from(chunk.data).toString();
  assert.equal((await shell.exited).code, 4);
  assert.equal(await shell.writeStdin("more"), false);
});

test("a signal waits for a daemon that is away", async (t) => {
  const { daemon, client } = await setUp(t);
  const session = await client.execs.start("a", { command: ["sleep"] });
  await daemon.stop();
  const told = session.signal("SIGTERM");
  await sleep(30);
  await daemon.start();
  await told;
  assert.equal((await session.exited).signal, "SIGTERM");
});

test("an exec that is not there fails at once with its own error", async (t) => {
  const { client } = await setUp(t);
  const session = client.execs.attach("a", "exec-none");
  await assert.rejects(session.collect(), (error) => isPlatformError(error, "EXEC_NOT_FOUND"));
  await assert.rejects(session.exited, (error) => isPlatformError(error, "EXEC_NOT_FOUND"));
  await assert.rejects(session.writeStdin("x"), (error) => isPlatformError(error, "EXEC_NOT_FOUND"));
  await assert.rejects(client.execs.start("a", { command: ["no-such-program"] }), (error) => isPlatformError(error, "EXEC_START_FAILED"));
});

test("trying to attach again ends when its time is over", async (t) => {
  const { daemon, client } = await setUp(t);
  const session = await client.execs.start("a", { command: ["sleep"] }, { reconnectMs: 200 });
  await waitUntil(() => daemon.seen.length > 0);
  await daemon.stop();
  await assert.rejects(session.collect(), (error) => isPlatformError(error, "DAEMON_UNREACHABLE"));
  await daemon.start();
});

test("detaching leaves the command; a second session goes on where the first had read", async (t) => {
  const { daemon, client } = await setUp(t);
  const first = await client.execs.start("a", { command: ["cat"], stdin: true });
  await first.writeStdin("hello ");
  const { value } = await first.output().next();
  assert.equal(Buffer.from(value?.data ?? []).toString(), "hello ");
  first.detach();
  await assert.rejects(first.exited, (error) => isPlatformError(error, "REQUEST_CANCELLED"));
  const second = client.execs.attach("a", first.execId, { stdoutOffset: 6 });
  await second.writeStdin("world");
  second.endStdin();
  assert.equal((await second.collect()).stdout.toString(), "world");
  assert.equal(daemon.host.requireExec("a", first.execId).view().state, "exited");
});

test("closing the client ends its sessions", async (t) => {
  const { daemon } = await setUp(t);
  const client = createClient({ server: daemon.address });
  const session = await client.execs.start("a", { command: ["sleep"] });
  await client.close();
  await assert.rejects(session.exited, (error) => isPlatformError(error, "REQUEST_CANCELLED"));
});

test("the caller's signal ends a session with the caller's reason", async (t) => {
  const { client } = await setUp(t);
  const controller = new AbortController();
  const session = await client.execs.start("a", { command: ["sleep"] }, { signal: controller.signal });
  const mine = new Error("mine");
  controller.abort(mine);
  await assert.rejects(session.collect(), (error) => error === mine);
});

async function waitUntil(condition: () => boolean): Promise<void> {
  for (let i = 0; i < 1000 && !condition(); i += 1) await sleep(5);
  assert.ok(condition(), "the state did not come");
}

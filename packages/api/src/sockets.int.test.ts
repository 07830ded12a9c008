/** What only real sockets show: listeners, callers that go away, streams, back-pressure, WebSockets, stopping. */
import { strict as assert } from "node:assert";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { request, type IncomingMessage } from "node:http";
import { connect, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { createMemoryLogger } from "@fluxvm/telemetry/testing";
import { WebSocket } from "ws";
import { createApiServer } from "./http-server.ts";
import { startFakeDaemon, type FakeDaemon, type FakeDaemonOptions } from "./testing/index.ts";
import { createTestApi } from "./testing/test-api.ts";

async function startDaemon(t: TestContext, options: FakeDaemonOptions = {}): Promise<FakeDaemon> {
  const daemon = await startFakeDaemon(options);
  t.after(async () => await daemon.close());
  return daemon;
}

async function ask(daemon: FakeDaemon, method: string, path: string, body?: string | Uint8Array): Promise<Response> {
  return await fetch(daemon.url + path, {
    method,
    headers: { authorization: `Bearer ${daemon.token}`, ...(typeof body === "string" ? { "content-type": "application/json" } : {}) },
    ...(body === undefined ? {} : { body: typeof body === "string" ? body : Buffer.from(body) }),
  });
}

async function makeVm(daemon: FakeDaemon, name = "a"): Promise<void> {
  const reply = await ask(daemon, "POST", "/v1/vms", JSON.stringify({ name }));
  assert.equal(reply.status, 201, await reply.text());
}

/** Sends bytes and returns all that comes back until the server closes. */
async function sendRaw(daemon: FakeDaemon, bytes: string): Promise<string> {
  const socket = connect(daemon.port, "127.0.0.1");
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  socket.on("error", () => undefined);
  socket.write(bytes);
  await once(socket, "close");
  return Buffer.concat(chunks).toString();
}

test("the Unix socket needs no token, TCP does", async (t) => {
  const directory = mkdtempSync(join(tmpdir(), "fluxvm-api-"));
  t.after(() => rmSync(directory, { recursive: true }));
  const socketPath = join(directory, "api.sock");
  const daemon = await startDaemon(t, { socketPath });
  const sent = request({ socketPath, path: "/v1/vms" });
  sent.end();
  const [reply] = (await once(sent, "response")) as [IncomingMessage];
  assert.equal(reply.statusCode, 200);
  reply.resume();
  assert.equal((await fetch(`${daemon.url}/v1/vms`)).status, 401);
  assert.equal((await ask(daemon, "GET", "/v1/vms")).status, 200);
});

test("bytes that are not HTTP, and headers too large, get the one error body", async (t) => {
  const daemon = await startDaemon(t);
  const garbage = await sendRaw(daemon, "this is not http\r\n\r\n");
  assert.match(garbage, /^HTTP\/1\.1 400 /);
  assert.match(garbage, /"code":"REQUEST_INVALID"/);
  const large = await sendRaw(daemon, `GET / HTTP/1.1\r\nHost: localhost\r\nX: ${"x".repeat(40_000)}\r\n\r\n`);
  assert.match(large, /^HTTP\/1\.1 431 /);
  assert.match(large, /"code":"PAYLOAD_TOO_LARGE"/);
});

test("a client whose bytes were refused cannot hold the connection", { timeout: 10_000 }, async (t) => {
  const { api } = await createTestApi();
  const server = createApiServer(api, "tcp").listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo; // a TCP server that listens has one
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true }); // never ends its own side
  t.after(() => {
    socket.destroy();
    server.close();
  });
  const open = async (): Promise<number> =>
    await new Promise((resolve, reject) => server.getConnections((error, count) => (error === null ? resolve(count) : reject(error))));
  socket.resume().write("this is not http\r\n\r\n");
  await once(socket, "end");
  while ((await open()) > 0) await delay(5);
});

test("a WebSocket that is refused for want of a token is closed after the reply", { timeout: 10_000 }, async (t) => {
  const daemon = await startDaemon(t);
  const reply = await sendRaw(
    daemon,
    "GET /v1/vms/a/execs/x/attach HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
  );
  assert.match(reply, /^HTTP\/1\.1 401 /);
  assert.match(reply, /"code":"TOKEN_MISSING"/);
});

test("a body that stalls is 408, one that grows past the limit 413, and both close the connection", async (t) => {
  const daemon = await startDaemon(t, { limits: { bodyTimeoutMs: 100, maxBodyBytes: 1000 } });
  const head = `POST /v1/vms HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${daemon.token}\r\nContent-Type: application/json\r\n`;
  const stalled = await sendRaw(daemon, `${head}Content-Length: 100\r\n\r\n{"name"`);
  assert.match(stalled, /^HTTP\/1\.1 408 /);
  assert.match(stalled, /"code":"REQUEST_TIMEOUT"/);
  const chunk = `400\r\n${" ".repeat(1024)}\r\n`;
  const grown = await sendRaw(daemon, `${head}Transfer-Encoding: chunked\r\n\r\n${chunk}${chunk}`);
  assert.match(grown, /^HTTP\/1\.1 413 /);
  assert.match(grown, /"code":"PAYLOAD_TOO_LARGE"/);
});

test("a caller that goes away cancels its call", async (t) => {
  const { logger, lines } = createMemoryLogger();
  const daemon = await startDaemon(t, { logger });
  const hung = daemon.platform.hangNext("vms.create");
  const caller = new AbortController();
  const reply = fetch(`${daemon.url}/v1/vms`, {
    method: "POST",
    headers: { authorization: `Bearer ${daemon.token}`, "content-type": "application/json" },
    body: '{"name":"a"}',
    signal: caller.signal,
  });
  await hung.started;
  caller.abort();
  await assert.rejects(reply);
  assert.match(String(await hung.aborted), /went away/);
  while (!lines.some((l) => l.msg === "request")) await delay(5);
  assert.deepEqual(
    [lines.find((l) => l.msg === "request")?.["statusCode"], lines.find((l) => l.msg === "request")?.["code"]],
    [499, "REQUEST_CANCELLED"],
  );
});

test("logs follow as they are printed and end when the VM is deleted", async (t) => {
  const daemon = await startDaemon(t);
  await makeVm(daemon);
  const reply = await ask(daemon, "GET", "/v1/vms/a/logs?lines=1&follow=true");
  const text = reply.body?.pipeThrough(new TextDecoderStream()).getReader();
  assert.equal((await text?.read())?.value, "fluxvm-guest-agent: ready\n");
  daemon.platform.print("a", "more\n");
  assert.equal((await text?.read())?.value, "more\n");
  await ask(daemon, "DELETE", "/v1/vms/a");
  assert.equal((await text?.read())?.done, true);
});

test("a quiet stream's headers come at once", async (t) => {
  const daemon = await startDaemon(t);
  await makeVm(daemon);
  const reply = await ask(daemon, "GET", "/v1/vms/a/logs?lines=0&follow=true");
  assert.equal(reply.status, 200);
  await reply.body?.cancel();
});

test("a stream that fails midway is cut, not ended", async (t) => {
  const daemon = await startDaemon(t);
  await makeVm(daemon);
  daemon.platform.intercept("vms.logs", () =>
    (async function* () {
      yield Buffer.from("begin");
      await delay(1);
      throw new Error("gone");
    })(),
  );
  const reply = await ask(daemon, "GET", "/v1/vms/a/logs");
  await assert.rejects(reply.text());
});

test("file events arrive as server-sent events", async (t) => {
  const daemon = await startDaemon(t);
  await makeVm(daemon);
  const reply = await ask(daemon, "GET", "/v1/vms/a/files/watch?path=/tmp");
  assert.equal(reply.headers.get("content-type"), "text/event-stream");
  const text = reply.body?.pipeThrough(new TextDecoderStream()).getReader();
  await ask(daemon, "PUT", "/v1/vms/a/files?path=/tmp/new", Buffer.from("x"));
  assert.equal((await text?.read())?.value, 'event: file\ndata: {"type":"created","name":"new"}\n\n');
  await text?.cancel();
});

test("an upload is read only as fast as it is taken", async (t) => {
  const daemon = await startDaemon(t);
  await makeVm(daemon);
  const go = Promise.withResolvers<void>();
  let taken = 0;
  daemon.platform.intercept("guests.writeFile", async (_vm: never, path: string, content: AsyncIterable<Uint8Array>) => {
    for await (const chunk of content) {
      taken += chunk.length;
      if (taken > 1_000_000) await go.promise;
    }
    return { path, type: "file", size: taken, mode: 0o644, uid: 0, gid: 0, modified_at: new Date(0).toISOString() };
  });
  let produced = 0;
  const total = 64 * 1_048_576;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (produced >= total) return controller.close();
      produced += 65_536;
      controller.enqueue(new Uint8Array(65_536));
    },
  });
  const reply = fetch(`${daemon.url}/v1/vms/a/files?path=/tmp/big`, {
    method: "PUT",
    headers: { authorization: `Bearer ${daemon.token}` },
    body,
    duplex: "half",
  });
  while (taken <= 1_000_000) await delay(5);
  await delay(200);
  assert.ok(produced < 32 * 1_048_576, `the client could send ${produced} bytes while 1 MB was taken`);
  go.resolve();
  const done = (await (await reply).json()) as { size: number };
  assert.equal(done.size, total);
});

test("an upload that breaks off leaves the old content, one that is refused gets its answer while still sending", async (t) => {
  const daemon = await startDaemon(t);
  await makeVm(daemon);
  await ask(daemon, "PUT", "/v1/vms/a/files?path=/tmp/keep", Buffer.from("old"));
  const socket = connect(daemon.port, "127.0.0.1");
  socket.write(
    `PUT /v1/vms/a/files?path=/tmp/keep HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${daemon.token}\r\nContent-Length: 1000\r\n\r\nnew`,
  );
  await delay(50);
  socket.destroy();
  await delay(50);
  assert.equal(await (await ask(daemon, "GET", "/v1/vms/a/files?path=/tmp/keep")).text(), "old");

  const refused = connect(daemon.port, "127.0.0.1");
  const answer: Buffer[] = [];
  refused.on("data", (chunk: Buffer) => answer.push(chunk));
  refused.on("error", () => undefined);
  refused.write(
    `PUT /v1/vms/none/files?path=/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${daemon.token}\r\nContent-Length: 100000000\r\n\r\n`,
  );
  for (let i = 0; i < 50 && answer.length === 0; i += 1) {
    refused.write(Buffer.alloc(65_536));
    await delay(5);
  }
  refused.destroy();
  assert.match(Buffer.concat(answer).toString(), /^HTTP\/1\.1 404 [^]*"code":"VM_NOT_FOUND"/);
});

interface Attached {
  readonly socket: WebSocket;
  readonly texts: Record<string, unknown>[];
  readonly output: { stdout: Buffer; stderr: Buffer };
  readonly closed: Promise<number>;
  text(type: string): Promise<Record<string, unknown>>;
}

function attach(daemon: FakeDaemon, exec: string, query = "", options: { readonly acks?: boolean } = {}): Attached {
  const url = `${daemon.url.replace("http", "ws")}/v1/vms/a/execs/${exec}/attach${query}`;
  const socket = new WebSocket(url, { headers: { authorization: `Bearer ${daemon.token}` } });
  const texts: Record<string, unknown>[] = [];
  const output = { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) };
  const base = { stdout: Number(/stdout_offset=(\d+)/.exec(query)?.[1] ?? 0), stderr: 0 };
  const closed = new Promise<number>((resolve) => {
    socket.on("close", (code) => resolve(code));
  });
  socket.on("error", () => undefined);
  socket.on("message", (data: Buffer, isBinary) => {
    if (!isBinary) {
      texts.push(JSON.parse(data.toString()) as Record<string, unknown>);
      return;
    }
    const stream = data[0] === 1 ? "stdout" : "stderr";
    assert.equal(Number(data.readBigUInt64BE(1)), base[stream] + output[stream].length, "bytes come in order, once");
    output[stream] = Buffer.concat([output[stream], data.subarray(9)]);
    const acked = { stdout: base.stdout + output.stdout.length, stderr: base.stderr + output.stderr.length };
    if (options.acks !== false) socket.send(JSON.stringify({ type: "ack", ...acked }));
  });
  const text = async (type: string): Promise<Record<string, unknown>> => {
    for (;;) {
      const found = texts.find((m) => m["type"] === type);
      if (found !== undefined) return found;
      await delay(2);
    }
  };
  return { socket, texts, output, closed, text };
}

function stdinFrame(offset: number, bytes: Uint8Array): Buffer {
  const frame = Buffer.alloc(9 + bytes.length);
  frame.writeBigUInt64BE(BigInt(offset), 1);
  frame.set(bytes, 9);
  return frame;
}

async function makeExec(daemon: FakeDaemon, request: unknown): Promise<string> {
  const reply = await ask(daemon, "POST", "/v1/vms/a/execs", JSON.stringify(request));
  return ((await reply.json()) as { id: string }).id;
}

test("attach: output, input, its acknowledgement, exit and a clean close", async (t) => {
  const daemon = await startDaemon(t);
  await makeVm(daemon);
  const client = attach(daemon, await makeExec(daemon, { command: ["cat"], stdin: true }));
  assert.deepEqual(await client.text("attached"), { type: "attached", stdin_offset: 0 });
  client.socket.send(stdinFrame(0, Buffer.from("hello ")));
  client.socket.send(stdinFrame(6, Buffer.from("world")));
  client.socket.send(JSON.stringify({ type: "stdin_end", offset: 11 }));
  assert.deepEqual(await client.text("exit"), { type: "exit", exit: { code: 0, timed_out: false }, stdout_bytes: 11, stderr_bytes: 0 });
  assert.equal(await client.closed, 1000);
  assert.equal(client.output.stdout.toString(), "hello world");
  assert.ok(client.texts.some((m) => m["type"] === "stdin_ack" && m["offset"] === 11));
});

test("attach again goes on at the byte asked for; acknowledged bytes are gone", async (t) => {
  const daemon = await startDaemon(t);
  await makeVm(daemon);
  const exec = await makeExec(daemon, { command: ["seq", "100"] });
  const first = attach(daemon, exec, "", { acks: false });
  await first.text("exit");
  first.socket.send(JSON.stringify({ type: "ack", stdout: 10, stderr: 0 }));
  await delay(20);
  first.socket.terminate();
  const second = attach(daemon, exec, "?stdout_offset=10");
  await second.text("exit");
  assert.equal(second.output.stdout.toString(), first.output.stdout.subarray(10).toString());
  const lost = attach(daemon, exec, "?stdout_offset=3");
  assert.equal(((await lost.text("error"))["error"] as { code: string }).code, "EXEC_OUTPUT_LOST");
  assert.equal(await lost.closed, 4500);
});

test("attach errors are told on the socket: no exec, no VM, a bad offset before the upgrade", async (t) => {
  const daemon = await startDaemon(t);
  await makeVm(daemon);
  const missing = attach(daemon, "exec-none");
  assert.equal(((await missing.text("error"))["error"] as { code: string }).code, "EXEC_NOT_FOUND");
  assert.equal(await missing.closed, 4404);
  const refused = attach(daemon, "x", "?stdout_offset=-1");
  assert.equal(await refused.closed, 1006);
  const stranger = new WebSocket(`${daemon.url.replace("http", "ws")}/v1/vms/a/execs/x/attach`);
  stranger.on("error", () => undefined);
  const [, reply] = (await once(stranger, "unexpected-response")) as [unknown, IncomingMessage];
  assert.equal(reply.statusCode, 401);
  stranger.terminate();
});

test("input messages without bytes are bounded too", { timeout: 10_000 }, async (t) => {
  const daemon = await startDaemon(t);
  await makeVm(daemon);
  const detached = Promise.withResolvers<void>();
  const wait = async (): Promise<void> => await detached.promise; // a process that reads nothing
  daemon.platform.intercept("guests.attachExec", async () => {
    const output = { [Symbol.asyncIterator]: () => ({ next: async () => await wait().then(() => ({ done: true, value: undefined })) }) };
    return {
      stdinOffset: 0,
      output,
      ack: () => undefined,
      writeStdin: wait,
      endStdin: wait,
      resize: wait,
      signal: wait,
      detach: detached.resolve,
    };
  });
  const client = attach(daemon, "exec-a");
  await client.text("attached");
  for (let i = 0; i < 5000; i += 1) client.socket.send(i % 2 === 0 ? stdinFrame(0, Buffer.alloc(0)) : '{"type":"stdin_end","offset":0}');
  assert.equal(((await client.text("error"))["error"] as { code: string }).code, "REQUEST_INVALID");
  assert.equal(await client.closed, 4400);
});

test("a client that acknowledges nothing is sent a bounded amount, and the rest when it does", async (t) => {
  const daemon = await startDaemon(t);
  await makeVm(daemon);
  const client = attach(daemon, await makeExec(daemon, { command: ["seq", "2000000"] }), "", { acks: false });
  let before = -1;
  while (before !== client.output.stdout.length) {
    before = client.output.stdout.length;
    await delay(150);
  }
  assert.ok(before > 0 && before < 6 * 1_048_576, `${before} bytes came without an acknowledgement`);
  const acking = (async (): Promise<void> => {
    while (!client.texts.some((m) => m["type"] === "exit")) {
      client.socket.send(JSON.stringify({ type: "ack", stdout: client.output.stdout.length, stderr: 0 }));
      await delay(2);
    }
    client.socket.send(JSON.stringify({ type: "ack", stdout: client.output.stdout.length, stderr: 0 }));
  })();
  const exit = await client.text("exit");
  await acking;
  assert.equal(client.output.stdout.length, exit["stdout_bytes"]);
  assert.ok(client.output.stdout.toString().endsWith("\n2000000\n"));
});

test("acknowledgements pass a full standard input, which would else be a deadlock", async (t) => {
  const daemon = await startDaemon(t);
  await makeVm(daemon);
  const client = attach(daemon, await makeExec(daemon, { command: ["cat"], stdin: true }));
  await client.text("attached");
  const total = 8 * 1_048_576;
  const piece = Buffer.alloc(65_536, 7);
  for (let offset = 0; offset < total; offset += piece.length) {
    while (offset - Number(client.texts.findLast((m) => m["type"] === "stdin_ack")?.["offset"] ?? 0) > 131_072) await delay(1);
    client.socket.send(stdinFrame(offset, piece));
  }
  client.socket.send(JSON.stringify({ type: "stdin_end", offset: total }));
  await client.text("exit");
  assert.equal(client.output.stdout.length, total);
});

for (const [name, message] of [
  ["not JSON", "nonsense"],
  ["an unknown type", '{"type":"dance"}'],
  ["a negative acknowledgement", '{"type":"ack","stdout":-1,"stderr":0}'],
  ["a terminal without rows", '{"type":"resize","rows":0,"cols":80}'],
  ["a signal that is none", '{"type":"signal","signal":"; rm -rf /"}'],
  ["a frame shorter than its header", Buffer.from([0, 1])],
  ["a frame on the output's channel", Buffer.concat([Buffer.from([1]), Buffer.alloc(8)])],
  ["an offset out of range", Buffer.concat([Buffer.from([0]), Buffer.alloc(8, 255)])],
  ["input beyond a gap", stdinFrame(100, Buffer.from("x"))],
] as const) {
  test(`a client that sends ${name} is cut off with an error, and the exec goes on`, async (t) => {
    const daemon = await startDaemon(t);
    await makeVm(daemon);
    const exec = await makeExec(daemon, { command: ["cat"], stdin: true });
    const client = attach(daemon, exec);
    await client.text("attached");
    client.socket.send(message);
    assert.equal(((await client.text("error"))["error"] as { code: string }).code, "REQUEST_INVALID");
    assert.equal(await client.closed, 4400);
    const view = (await (await ask(daemon, "GET", `/v1/vms/a/execs/${exec}`)).json()) as { state: string };
    assert.equal(view.state, "running");
  });
}

test("a client that floods standard input past its window is cut off", async (t) => {
  const daemon = await startDaemon(t);
  await makeVm(daemon);
  const stuck = Promise.withResolvers<void>();
  daemon.platform.intercept("guests.attachExec", async () => ({
    stdinOffset: 0,
    output: { [Symbol.asyncIterator]: () => ({ next: async () => await new Promise<never>(() => undefined) }) },
    ack: () => undefined,
    writeStdin: async () => await stuck.promise,
    endStdin: async () => undefined,
    resize: async () => undefined,
    signal: async () => undefined,
    detach: () => stuck.resolve(),
  }));
  const client = attach(daemon, "any");
  await client.text("attached");
  for (let i = 0; i < 20; i += 1) client.socket.send(stdinFrame(i * 65_536, Buffer.alloc(65_536)));
  assert.equal(await client.closed, 4400);
  await stuck.promise;
});

test("a terminal echoes, is resized and is signalled", async (t) => {
  const daemon = await startDaemon(t);
  await makeVm(daemon);
  const client = attach(daemon, await makeExec(daemon, { command: ["sh"], stdin: true, tty: { rows: 24, cols: 80 } }));
  await client.text("attached");
  client.socket.send(JSON.stringify({ type: "resize", rows: 50, cols: 120 }));
  client.socket.send(stdinFrame(0, Buffer.from("echo hi\r")));
  while (!client.output.stdout.toString().includes("\r\nhi\r\n$ ")) await delay(2);
  assert.match(client.output.stdout.toString(), /\[resized to 120x50\]/);
  client.socket.send(JSON.stringify({ type: "signal", signal: "SIGHUP" }));
  assert.deepEqual((await client.text("exit"))["exit"], { signal: "SIGHUP", timed_out: false });
});

test("stopping ends streams and sockets, refuses new requests and lets those under way finish", async (t) => {
  const daemon = await startFakeDaemon();
  t.after(async () => await daemon.close());
  await makeVm(daemon);
  const client = attach(daemon, await makeExec(daemon, { command: ["sleep", "1000"] }));
  await client.text("attached");
  const logs = await ask(daemon, "GET", "/v1/vms/a/logs?follow=true");
  const closing = daemon.close();
  assert.equal(((await client.text("error"))["error"] as { code: string }).code, "SHUTTING_DOWN");
  assert.equal(await client.closed, 4503);
  await assert.rejects(logs.text());
  await closing;
  await assert.rejects(fetch(daemon.url));
});

import assert from "node:assert/strict";
import { link, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { openTransport } from "./transport.ts";

async function withServer(onConnection: (socket: Socket) => void, body: (path: string) => Promise<void>): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), "fluxvm-transport-"));
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket.on("error", () => undefined)); // the other end shows it
    onConnection(socket);
  });
  const path = join(directory, "s.sock");
  await new Promise<void>((resolve) => server.listen(path, resolve));
  try {
    await body(path);
  } finally {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
    await rm(directory, { recursive: true });
  }
}

const call = { signal: AbortSignal.timeout(10_000) };

test("CONNECT names the port, and bytes right behind the reply are kept", async () => {
  await withServer(
    (socket) => socket.once("data", (bytes: Buffer) => socket.write(`OK ${bytes.toString().trim()}\nfirst bytes`)),
    async (path) => {
      const line = await openTransport({ kind: "connect", path, port: 17777 }, call);
      line.resume();
      const bytes = await new Promise<Buffer>((resolve) => line.once("data", resolve));
      assert.equal(bytes.toString(), "first bytes");
      line.destroy();
    },
  );
});

test("a VMM that refuses, hangs up or talks without end is unreachable", async () => {
  const ways: ((socket: Socket) => void)[] = [(s) => s.write("NO\n"), (s) => s.destroy(), (s) => s.write("x".repeat(1000))];
  for (const way of ways) {
    await withServer(way, async (path) => {
      await assert.rejects(openTransport({ kind: "connect", path, port: 1 }, call), { code: "AGENT_UNREACHABLE" });
    });
  }
});

test("a VMM that says nothing is waited for as long as the caller wants", async () => {
  await withServer(
    () => undefined,
    async (path) => {
      await assert.rejects(openTransport({ kind: "connect", path, port: 1 }, { signal: AbortSignal.timeout(50) }), {
        name: "TimeoutError",
      });
    },
  );
});

test("nobody there is unreachable", async () => {
  await assert.rejects(openTransport({ kind: "unix", path: "/no/such/socket" }, call), { code: "AGENT_UNREACHABLE" });
});

test("vsock needs somebody who can open one", async () => {
  await assert.rejects(openTransport({ kind: "vsock", cid: 3, port: 17777 }, call), { code: "HOST_CAPABILITY_MISSING" });
  const line = new PassThrough();
  const opened = await openTransport(
    { kind: "vsock", cid: 3, port: 17777 },
    { ...call, openVsock: async (target) => (assert.deepEqual([target.cid, target.port], [3, 17777]), line) },
  );
  assert.equal(opened, line);
});

test("what a VMM may have put in the socket's place is not followed: a link to another socket, a file, nothing", async () => {
  let connections = 0;
  await withServer(
    () => (connections += 1),
    async (path) => {
      await symlink(path, `${path}.link`);
      await writeFile(`${path}.file`, "");
      for (const other of [`${path}.link`, `${path}.file`, `${path}.missing`]) {
        await assert.rejects(openTransport({ kind: "unix", path: other }, call), { code: "AGENT_UNREACHABLE" }, other);
        await assert.rejects(openTransport({ kind: "connect", path: other, port: 1 }, call), { code: "AGENT_UNREACHABLE" }, other);
      }
      assert.equal(connections, 0);
      (await openTransport({ kind: "unix", path }, call)).destroy();
    },
  );
});

test("a socket whose path is longer than an address may be is reached all the same", async () => {
  await withServer(
    (socket) => socket.end("hello"),
    async (path) => {
      const long = `${path}-${"x".repeat(120)}`;
      await link(path, long);
      const line = await openTransport({ kind: "unix", path: long }, call);
      const bytes = await new Promise<Buffer>((resolve) => line.once("data", resolve));
      assert.equal(bytes.toString(), "hello");
    },
  );
});

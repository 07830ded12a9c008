import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { createClient, isPlatformError, PlatformError, type Client } from "./index.ts";
import { startFakeDaemon, type FakeDaemon, type FakeDaemonOptions } from "./testing/index.ts";

async function setUp(
  t: TestContext,
  options: Partial<FakeDaemonOptions> & { readonly clientToken?: string } = {},
): Promise<{ daemon: FakeDaemon; client: Client; directory: string }> {
  const directory = await mkdtemp(join(tmpdir(), "fluxvm-sdk-"));
  const daemon = await startFakeDaemon({ listen: join(directory, "s.sock"), ...options });
  const client = createClient({ server: daemon.address, token: options.clientToken });
  t.after(async () => {
    await client.close();
    await daemon.stop();
    await rm(directory, { recursive: true });
  });
  return { daemon, client, directory };
}

test("a VM's whole life over a Unix socket", async (t) => {
  const { daemon, client } = await setUp(t);
  daemon.host.addImage("debian");
  const vm = await client.vms.create({ name: "a", image: "debian", ttl_seconds: 60 }, { ready: "exec" });
  assert.deepEqual([vm.name, vm.state, vm.image?.name, vm.ttl_remaining_seconds], ["a", "running", "debian", 60]);
  assert.deepEqual(daemon.seen[0]?.query, { ready: "exec" });
  assert.deepEqual(
    (await client.vms.list()).map((v) => v.name),
    ["a"],
  );
  assert.deepEqual((await client.vms.patch("a", { labels: { k: "v" }, ttl_seconds: null })).labels, { k: "v" });
  assert.equal((await client.vms.get("a")).ttl_remaining_seconds, undefined);
  assert.equal((await client.vms.pause("a")).state, "paused");
  assert.equal((await client.vms.resume("a")).state, "running");
  assert.equal((await client.vms.stop("a", { force: true })).state, "stopped");
  assert.equal((await client.vms.wait("a", ["stopped", "gone"], { timeoutSeconds: 5 }))?.state, "stopped");
  await client.vms.delete(vm.id);
  assert.equal(await client.vms.wait("a", ["gone"]), undefined);
});

test("names are escaped, so that no name reaches another route", async (t) => {
  const { daemon, client } = await setUp(t);
  await assert.rejects(client.vms.get("../images?x=1"), (error) => isPlatformError(error, "VM_NOT_FOUND"));
  assert.equal(daemon.seen[0]?.path, "/v1/vms/..%2Fimages%3Fx%3D1");
});

test("the daemon's errors come with code, class and fields", async (t) => {
  const { daemon, client } = await setUp(t);
  await assert.rejects(
    client.vms.get("nope"),
    (error) => isPlatformError(error, "VM_NOT_FOUND") && error.class === "not_found" && error.exitCode === 3,
  );
  daemon.host.createGate = Promise.reject(
    new PlatformError("REQUEST_INVALID", "Invalid vcpus", { fields: [{ path: "vcpus", message: "at least 1" }] }),
  );
  daemon.host.createGate.catch(() => undefined);
  await assert.rejects(client.vms.create({ name: "x" }), (error) => isPlatformError(error) && error.fields[0]?.path === "vcpus");
});

test("a token is sent, and its absence is unauthenticated", async (t) => {
  const { client, daemon } = await setUp(t, { listen: 0, token: "s3cret", clientToken: "s3cret" });
  assert.equal((await client.host.version()).version, "0.1.0");
  const without = createClient({ server: daemon.address });
  t.after(async () => await without.close());
  await assert.rejects(without.host.version(), (error) => isPlatformError(error, "TOKEN_MISSING") && error.exitCode === 5);
});

test("no daemon: unavailable, and what to do about it", async (t) => {
  const { client, daemon, directory } = await setUp(t);
  assert.equal(await client.host.isAlive(), true);
  await daemon.stop();
  assert.equal(await client.host.isAlive(), false);
  await assert.rejects(
    client.vms.list(),
    (error) => isPlatformError(error, "DAEMON_UNREACHABLE") && error.class === "unavailable" && /fluxctl serve/.test(error.message),
  );
  await writeFile(join(directory, "plain"), "");
  const wrong = createClient({ server: `unix:${join(directory, "plain")}` });
  t.after(async () => await wrong.close());
  await assert.rejects(wrong.vms.list(), (error) => isPlatformError(error, "DAEMON_UNREACHABLE"));
});

test("a signal ends a request that waits, with the caller's own reason", async (t) => {
  const { daemon, client } = await setUp(t);
  const gate = Promise.withResolvers<undefined>();
  daemon.host.createGate = gate.promise.then(() => undefined);
  const mine = new PlatformError("DEADLINE_EXCEEDED", "mine");
  const controller = new AbortController();
  const waiting = client.vms.create({ name: "slow" }, { signal: controller.signal });
  controller.abort(mine);
  await assert.rejects(waiting, (error) => error === mine);
  await assert.rejects(client.vms.create({ name: "slow" }, { signal: AbortSignal.abort() }), (error) =>
    isPlatformError(error, "REQUEST_CANCELLED"),
  );
  gate.resolve(undefined);
});

test("an import is followed to its end with its progress", async (t) => {
  const { client } = await setUp(t);
  const image = await client.images.create({ source: "debian:bookworm" });
  const phases: string[] = [];
  const ready = await client.images.follow(image.id, {
    onProgress: (view) => phases.push(`${view.state} ${view.progress?.done_bytes ?? ""}`),
  });
  assert.equal(ready.state, "ready");
  assert.equal(phases.at(-1), "ready ");
  assert.ok(phases.length >= 2, phases.join());
  assert.deepEqual((await client.images.get("debian:bookworm")).id, image.id);
  await client.images.delete("debian:bookworm");
  await assert.rejects(client.images.get("debian:bookworm"), (error) => isPlatformError(error, "IMAGE_NOT_FOUND"));
});

test("files stream both ways byte for byte", async (t) => {
  const { daemon, client } = await setUp(t);
  daemon.host.addVm("a");
  const piece = Buffer.alloc(65_536, "0123456789abcdef");
  const pieces = 64;
  const source = async function* (): AsyncGenerator<Uint8Array> {
    for (let i = 0; i < pieces; i += 1) yield piece;
    await Promise.resolve();
  };
  const stat = await client.files.write("a", "/tmp/new/big", source(), { mode: 0o600, parents: true });
  assert.deepEqual([stat.size, stat.mode], [piece.length * pieces, 0o600]);
  const file = await client.files.read("a", "/tmp/new/big");
  let size = 0;
  for await (const chunk of file.content) {
    const bytes = chunk as Buffer; // the body of a reply
    assert.ok(bytes.equals(Buffer.concat([piece, piece]).subarray(size % 16, (size % 16) + bytes.length)) || bytes.length > piece.length);
    size += bytes.length;
  }
  assert.deepEqual([size, file.stat.size], [piece.length * pieces, piece.length * pieces]);
  const part = await client.files.read("a", "/etc/hostname", { offset: 1, length: 2 });
  assert.equal(String(await part.content.toArray()), "ak");
  assert.deepEqual(
    (await client.files.list("a", "/etc")).map((f) => f.path),
    ["/etc/hostname"],
  );
  await client.files.rename("a", "/tmp/new/big", "/tmp/big");
  await assert.rejects(client.files.remove("a", "/tmp"), (error) => isPlatformError(error, "GUEST_FILE_INVALID"));
  await client.files.remove("a", "/tmp", { recursive: true });
  await assert.rejects(client.files.read("a", "/tmp/big"), (error) => isPlatformError(error, "GUEST_FILE_NOT_FOUND"));
});

test("a source that fails is its own error, not the daemon's", async (t) => {
  const { daemon, client } = await setUp(t);
  daemon.host.addVm("a");
  const failure = Object.assign(new Error("disk on fire"), { code: "EIO" });
  const source = async function* (): AsyncGenerator<Uint8Array> {
    yield Buffer.from("x");
    await Promise.resolve();
    throw failure;
  };
  await assert.rejects(client.files.write("a", "/tmp/x", source()), (error) => error === failure);
  await assert.rejects(client.files.stat("a", "/tmp/x"), (error) => isPlatformError(error, "GUEST_FILE_NOT_FOUND"));
});

test("a refused upload tells why even while bytes are still to be sent", async (t) => {
  const { client } = await setUp(t);
  const source = async function* (): AsyncGenerator<Uint8Array> {
    for (let i = 0; i < 100; i += 1) yield Buffer.alloc(65_536);
    await Promise.resolve();
  };
  await assert.rejects(client.files.write("nope", "/x", source()), (error) => isPlatformError(error, "VM_NOT_FOUND"));
});

test("events, logs, metrics and readiness are read", async (t) => {
  const { daemon, client } = await setUp(t);
  daemon.host.addVm("a");
  const events = [];
  for await (const event of client.files.watch("a", "/tmp")) events.push(event.type);
  assert.deepEqual(events, ["created", "removed"]);
  let log = "";
  for await (const chunk of client.vms.logs("a", { lines: 2 })) log += Buffer.from(chunk).toString();
  assert.equal(log, "line two\nline three\n");
  assert.match(await client.host.metrics(), /fluxvm_vms_total/);
  assert.equal((await client.host.readiness()).ok, false);
  assert.equal((await client.agent.run("a", { command: "true" })).exit.code, 0);
});

test("an answer that is not the daemon's says so", async (t) => {
  const { client } = await setUp(t);
  await assert.rejects(client.host.openApi(), (error) => isPlatformError(error, "ROUTE_UNKNOWN"));
  const { createServer } = await import("node:http");
  const other = createServer((_, response) => response.writeHead(418).end("teapot"));
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  const address = other.address() as { port: number }; // listening on TCP
  const wrong = createClient({ server: `http://127.0.0.1:${address.port}` });
  t.after(async () => {
    await wrong.close();
    other.close();
  });
  await assert.rejects(wrong.host.version(), (error) => isPlatformError(error, "DAEMON_PROTOCOL") && /418/.test(error.message));
});

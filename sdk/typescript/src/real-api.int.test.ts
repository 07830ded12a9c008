/** The client against the real API (over a platform in memory): every route, with the strict checks of its schemas. */
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { startFakeDaemon, type FakeDaemon } from "@fluxvm/api/testing";
import { createClient, isPlatformError, type Client } from "./index.ts";

async function setUp(t: TestContext): Promise<{ daemon: FakeDaemon; client: Client; tcp: Client }> {
  const directory = await mkdtemp(join(tmpdir(), "fluxvm-real-api-"));
  const socketPath = join(directory, "s.sock");
  const daemon = await startFakeDaemon({ socketPath });
  const client = createClient({ server: `unix:${socketPath}` });
  const tcp = createClient({ server: daemon.url, token: daemon.token });
  t.after(async () => {
    await client.close();
    await tcp.close();
    await daemon.close();
    await rm(directory, { recursive: true });
  });
  daemon.platform.addKernel("default");
  daemon.platform.addImage("tool", ["echo", "hello"]);
  return { daemon, client, tcp };
}

test("VMs: every call is accepted as it is sent", async (t) => {
  const { client } = await setUp(t);
  const vm = await client.vms.create({ name: "a", image: "tool", labels: { k: "v" }, ttl_seconds: 600 }, { ready: "exec" });
  assert.ok((vm.first_command_ms ?? -1) >= 0);
  assert.equal((await client.vms.list({ name: "a", label: "k=v", state: "running" })).length, 1);
  assert.equal((await client.vms.patch("a", { labels: { k: null }, ttl_seconds: null })).labels["k"], undefined);
  assert.equal((await client.vms.pause("a")).state, "paused");
  assert.equal((await client.vms.resume("a")).state, "running");
  assert.equal((await client.vms.stop("a", { timeout_seconds: 0.5 })).state, "stopped");
  assert.equal((await client.vms.start("a", { ready: "exec" })).state, "running");
  assert.equal((await client.vms.restart("a", { force: true }, { ready: "exec" })).state, "running");
  assert.equal((await client.vms.wait("a", ["running", "gone"], { timeoutSeconds: 1 }))?.name, "a");
  await assert.rejects(client.vms.wait("a", ["stopped"], { timeoutSeconds: 0.05 }), (error) => isPlatformError(error, "WAIT_TIMEOUT"));
  await client.vms.delete(vm.id);
  await assert.rejects(client.vms.get("a"), (error) => isPlatformError(error, "VM_NOT_FOUND"));
});

test("a console is read and followed until the caller leaves", async (t) => {
  const { client, daemon } = await setUp(t);
  await client.vms.create({ name: "a", image: "tool" });
  daemon.platform.print("a", "one\ntwo\n");
  let text = "";
  for await (const chunk of client.vms.logs("a", { lines: 1, follow: true })) {
    text += Buffer.from(chunk).toString();
    if (text.includes("three")) break;
    daemon.platform.print("a", "three\n");
  }
  assert.match(text, /two\n[^]*three/);
});

test("execs run, take input, and are listed, signalled and removed", async (t) => {
  const { client, tcp } = await setUp(t);
  await client.vms.create({ name: "a", image: "tool" });
  for (const api of [client, tcp]) {
    const cat = await api.execs.start("a", { command: ["cat"], stdin: true, env: { A: "b" } });
    const text = Array.from({ length: 50_000 }, (_, i) => `${i}\n`).join("");
    const writing = cat.writeStdin(text).then(() => cat.endStdin());
    const { stdout, exit } = await cat.collect();
    await writing;
    assert.deepEqual([stdout.toString("latin1") === text, exit.code], [true, 0]);
    const sleeper = await api.execs.start("a", { command: ["sleep", "1000"] });
    await sleeper.signal("SIGKILL");
    assert.equal((await sleeper.collect()).exit.signal, "SIGKILL");
    assert.equal((await api.execs.get("a", sleeper.execId)).state, "exited");
    for (const exec of await api.execs.list("a")) if (exec.id !== "workload") await api.execs.remove("a", exec.id);
  }
  assert.equal((await client.agent.run("a", { command: ["echo", "x"] })).stdout, "x\n");
  assert.ok((await client.agent.ping("a")).rtt_ms >= 0);
  await assert.rejects(client.execs.attach("a", "exec-0000000000000000").exited, (error) => isPlatformError(error, "EXEC_NOT_FOUND"));
  await assert.rejects(client.execs.attach("nope", "workload").exited, (error) => isPlatformError(error, "VM_NOT_FOUND"));
});

test("output of megabytes comes whole over the real socket code", async (t) => {
  const { client } = await setUp(t);
  await client.vms.create({ name: "a", image: "tool" });
  const session = await client.execs.start("a", { command: ["seq", "1000000"] });
  let bytes = 0;
  for await (const chunk of session.output()) {
    assert.equal(chunk.offset, bytes);
    bytes += chunk.data.length;
  }
  assert.equal(bytes, 6_888_896);
});

test("files: every call is accepted as it is sent", async (t) => {
  const { client } = await setUp(t);
  await client.vms.create({ name: "a", image: "tool" });
  await client.files.makeDirectory("a", "/tmp/x/y", { parents: true, mode: 0o750 });
  const content = Buffer.alloc(3_000_000, "abc");
  const source = async function* (): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < content.length; at += 100_000) yield content.subarray(at, at + 100_000);
    await Promise.resolve();
  };
  assert.equal((await client.files.write("a", "/tmp/x/y/f", source(), { mode: 0o600, uid: 1, gid: 2 })).size, content.length);
  const file = await client.files.read("a", "/tmp/x/y/f", { offset: 1, length: 2_000_000 });
  assert.ok(Buffer.concat(await file.content.toArray()).equals(content.subarray(1, 2_000_001)));
  await client.files.rename("a", "/tmp/x/y/f", "/tmp/x/g");
  assert.deepEqual((await client.files.list("a", "/tmp/x")).map((stat) => stat.path).sort(), ["/tmp/x/g", "/tmp/x/y"]);
  const watching = (async () => {
    for await (const event of client.files.watch("a", "/tmp/x", { signal: AbortSignal.timeout(5000) })) return event;
    return undefined;
  })();
  const touching = (async () => {
    for (let i = 0; i < 100; i += 1) {
      await client.files.write("a", `/tmp/x/new${i}`, "x");
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  })();
  assert.match((await watching)?.name ?? "", /^new/);
  await touching;
  await client.files.remove("a", "/tmp/x", { recursive: true });
  await assert.rejects(client.files.stat("a", "/tmp/x"), (error) => isPlatformError(error, "GUEST_FILE_NOT_FOUND"));
});

test("images, kernels and the host: every call is accepted as it is sent", async (t) => {
  const { client, tcp } = await setUp(t);
  const image = await client.images.create({ source: "docker://registry:5000/a/b:1", size_gib: 1.5 });
  assert.equal((await client.images.follow(image.id, { onProgress: () => undefined })).state, "ready");
  assert.equal((await client.images.get("docker://registry:5000/a/b:1")).id, image.id);
  await client.images.delete("docker://registry:5000/a/b:1");
  const kernel = await client.kernels.create({ source: "debian:bookworm", name: "k" });
  assert.equal((await client.kernels.wait(kernel.id, { timeoutSeconds: 5 })).state, "ready");
  assert.equal((await client.kernels.list()).length, 2);
  await client.kernels.delete("k");
  assert.ok((await tcp.host.report({ refresh: true })).capabilities.length >= 0);
  assert.equal((await tcp.host.readiness()).ok, true);
  assert.equal(await tcp.host.isAlive(), true);
  assert.match(await tcp.host.metrics(), /# TYPE/);
  assert.equal((await tcp.host.version()).api, "v1");
  assert.equal(typeof (await tcp.host.openApi()), "object");
});

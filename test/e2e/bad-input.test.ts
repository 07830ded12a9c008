/** What is wrong gets a typed error that names the field or file, and leaves nothing behind. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdirSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { isPlatformError, type CreateVmRequest, type ErrorCode } from "@fluxvm/sdk";
import { Agent, request } from "undici";
import { findLeftovers } from "../../tools/quickstart/leftovers.ts";
import { importKernel, startDaemon, type TestDaemon } from "../fixtures/daemon.ts";
import { startWorld } from "../fixtures/world.ts";

interface Reply {
  readonly status: number;
  readonly body: { code?: string; class?: string; message?: string; requestId?: string; fields?: { path: string }[] };
}

describe("bad input", () => {
  let daemon: TestDaemon;
  let agent: Agent;
  const releases: (() => Promise<void>)[] = [];
  before(async () => {
    daemon = await startWorld({ after: (release) => releases.push(release as () => Promise<void>) });
    agent = new Agent({ connect: { socketPath: daemon.socket } });
  });
  after(async () => {
    await agent.close();
    for (const release of releases) await release();
  });

  async function post(path: string, body: string, type = "application/json"): Promise<Reply> {
    const reply = await request(`http://localhost${path}`, { method: "POST", body, headers: { "content-type": type }, dispatcher: agent });
    return { status: reply.statusCode, body: (await reply.body.json()) as Reply["body"] };
  }

  const cases: readonly [string, string, number, string, string?][] = [
    ["malformed JSON", "{", 400, "REQUEST_INVALID"],
    ["a list instead of an object", "[]", 400, "REQUEST_INVALID"],
    ["no name", "{}", 400, "REQUEST_INVALID", "name"],
    ["an unknown field", '{"name":"a","memory_mb":1}', 400, "FIELD_UNKNOWN", "memory_mb"],
    ["an unknown nested field", '{"name":"a","network":{"mode":"user","fowards":[]}}', 400, "FIELD_UNKNOWN", "network.fowards"],
    ["a field not served yet", '{"name":"a","tpm":true}', 501, "FIELD_UNSUPPORTED", "tpm"],
    ["a wrong type", '{"name":"a","vcpus":"2"}', 400, "REQUEST_INVALID", "vcpus"],
    ["a name with a path in it", '{"name":"../../etc/passwd"}', 400, "REQUEST_INVALID", "name"],
    ["a negative size", '{"name":"a","memory_mib":-5}', 400, "REQUEST_INVALID", "memory_mib"],
    ["an absurd size", '{"name":"a","memory_mib":99999999999}', 400, "REQUEST_INVALID", "memory_mib"],
    ["an absurd disk", '{"name":"a","image":"busybox","disk_size_gib":1e12}', 400, "REQUEST_INVALID", "disk_size_gib"],
    ["a fractional vCPU", '{"name":"a","vcpus":1.5}', 400, "REQUEST_INVALID", "vcpus"],
    [
      "a bad network",
      '{"name":"a","network":{"mode":"user","allow_cidrs":["10.0.0.0/99"]}}',
      400,
      "REQUEST_INVALID",
      "network.allow_cidrs",
    ],
    [
      "two forwards of one port",
      '{"name":"a","image":"busybox","network":{"mode":"user","forwards":[{"host_port":8081,"guest_port":1},{"host_port":8081,"guest_port":2}]}}',
      400,
      "REQUEST_INVALID",
      "network.forwards",
    ],
    ["an unknown backend", '{"name":"a","image":"busybox","backend":"hyperspace"}', 400, "BACKEND_UNKNOWN"],
    ["an image that is not there", '{"name":"a","image":"nope"}', 404, "IMAGE_NOT_FOUND"],
    ["a kernel that is not there", '{"name":"a","image":"busybox","kernel":"nope"}', 404, "KERNEL_NOT_FOUND"],
  ];
  for (const [what, body, status, code, field] of cases) {
    it(`refuses ${what}`, async () => {
      const reply = await post("/v1/vms", body);
      assert.deepEqual([reply.status, reply.body.code], [status, code], JSON.stringify(reply.body));
      assert.ok(reply.body.requestId !== undefined && reply.body.message !== undefined && reply.body.class !== undefined);
      if (field !== undefined)
        assert.ok(
          reply.body.fields?.some((f) => f.path.startsWith(field)),
          JSON.stringify(reply.body),
        );
      assert.deepEqual(await daemon.client.vms.list(), []);
    });
  }

  it("refuses another content type, an unknown route and an unknown query parameter", async () => {
    assert.equal((await post("/v1/vms", "name: a", "text/yaml")).body.class, "invalid_argument");
    assert.equal((await post("/v1/nothing", "{}")).status, 404);
    assert.equal((await post("/v1/vms?reddy=exec", '{"name":"a"}')).status, 400);
  });

  async function importFails(source: string, code: ErrorCode, more: { sha256?: string } = {}): Promise<string> {
    let message: string;
    try {
      const image = await daemon.client.images.create({ source, name: "bad", ...more });
      const done = await daemon.client.images.wait(image.id, { timeoutSeconds: 60 });
      assert.ok(done.state === "failed" && done.error !== undefined, `${source} was imported`);
      assert.equal(done.error.code, code, done.error.message);
      message = done.error.message;
      await daemon.client.images.delete(image.id);
    } catch (error) {
      if (!isPlatformError(error, code)) throw error;
      message = error.message;
    }
    return message;
  }

  it("refuses images that are missing, truncated, of another digest, or lead outside", async () => {
    const directory = join(daemon.directory, "images");
    mkdirSync(directory);
    assert.match(await importFails(join(directory, "none.raw"), "IMAGE_SOURCE_UNREACHABLE"), /none\.raw/);
    await importFails("oci:../../../etc", "IMAGE_SOURCE_INVALID");
    await importFails("floppy:a", "IMAGE_SOURCE_INVALID");
    const disk = join(directory, "disk.raw");
    writeFileSync(disk, Buffer.alloc(1024 * 1024, 7));
    const digest = createHash("sha256")
      .update(Buffer.alloc(1024 * 1024, 8))
      .digest("hex");
    await importFails(disk, "IMAGE_DIGEST_MISMATCH", { sha256: digest });
    const qcow = join(directory, "short.qcow2");
    writeFileSync(qcow, Buffer.from("514649fb00000003", "hex"));
    truncateSync(qcow, 40);
    assert.ok(["IMAGE_TRUNCATED", "IMAGE_MALFORMED"].includes(await codeOf(qcow)));
    rmSync(directory, { recursive: true });
    assert.deepEqual(
      (await daemon.client.images.list()).map((image) => image.name),
      ["busybox"],
    );
  });

  async function codeOf(source: string): Promise<string> {
    const image = await daemon.client.images.create({ source, name: "bad" });
    const done = await daemon.client.images.wait(image.id, { timeoutSeconds: 60 });
    await daemon.client.images.delete(image.id);
    return done.error?.code ?? done.state;
  }

  it("says that a guest died before it answered, and how", async () => {
    const create: CreateVmRequest = { name: "dead", image: "busybox", memory_mib: 128, kernel_args: "init=/nowhere rdinit=/nowhere" };
    await assert.rejects(
      daemon.client.vms.create(create, { ready: "exec", signal: AbortSignal.timeout(120_000) }),
      (error) => isPlatformError(error, "VM_EXITED") && /dead/.test(error.message),
    );
    for (const vm of await daemon.client.vms.list()) await daemon.client.vms.delete(vm.id);
    assert.deepEqual(findLeftovers(daemon.stateDir), []);
  });
});

it("gives up on a guest that does not answer in time, naming it; the VM stays for whoever wants to look", async (t) => {
  const daemon = await startWorld(t, { config: "[vm]\nready_timeout_ms = 100\n" });
  await assert.rejects(
    daemon.client.vms.create({ name: "mute", image: "busybox", memory_mib: 128 }, { ready: "exec" }),
    (error) => isPlatformError(error, "WAIT_TIMEOUT") && error.class === "deadline_exceeded" && /mute/.test(error.message),
  );
  assert.equal((await daemon.client.vms.get("mute")).state, "running");
  await daemon.client.vms.delete("mute");
  assert.deepEqual(findLeftovers(daemon.stateDir), []);
});

it("says that QEMU is not there, and leaves nothing", async (t) => {
  const daemon = await startDaemon(t, { config: '[tools]\nqemu = "/nonexistent/qemu-system-x86_64"\n' });
  await importKernel(daemon);
  await assert.rejects(
    daemon.client.vms.create({ name: "none", memory_mib: 64 }),
    (error) => isPlatformError(error) && /qemu/i.test(error.message),
  );
  assert.deepEqual(await daemon.client.vms.list(), []);
  assert.deepEqual(findLeftovers(daemon.stateDir), []);
});

it("refuses a VM while no kernel was imported, naming what to do", async (t) => {
  const daemon = await startDaemon(t);
  await assert.rejects(
    daemon.client.vms.create({ name: "none", memory_mib: 64 }),
    (error) => isPlatformError(error, "KERNEL_NOT_FOUND") && /kernel import/.test(error.message),
  );
});

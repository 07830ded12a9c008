/** Disks from files and over HTTP: recognised by content, bounded, resumed, refused when they would lead elsewhere. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdir, readFile, stat, truncate, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import test, { type TestContext } from "node:test";
import { runTool } from "@fluxvm/host";
import { requireTool } from "@fluxvm/host/testing";
import { assertReady, createImageWorld, type ImageWorld } from "../testing/index.ts";

const MIB = 1 << 20;

function sha256(data: Buffer): string {
  return createHash("sha256").update(data).digest("hex");
}

async function tool(w: ImageWorld, command: string, args: readonly string[]): Promise<void> {
  await runTool({ command, args, timeoutMs: 60_000, signal: w.signal });
}

async function patch(path: string, at: number, value: number): Promise<void> {
  const bytes = await readFile(path);
  bytes[at] = value;
  await writeFile(path, bytes);
}

test("formats are told by content, never by name", async (t) => {
  if (!requireTool(t, "qemu-img")) return;
  const w = await createImageWorld(t);
  const path = (name: string): string => join(w.directory, name);
  await writeFile(path("plain.qcow2"), Buffer.alloc(MIB, 1));
  await tool(w, "mke2fs", ["-q", "-F", "-t", "ext4", path("ext4.img"), "8M"]);
  await tool(w, "qemu-img", ["convert", "-f", "raw", "-O", "qcow2", path("ext4.img"), path("ext4.raw")]);
  await tool(w, "qemu-img", ["convert", "-c", "-f", "raw", "-O", "qcow2", path("ext4.img"), path("compressed")]);
  const facts = async (name: string): Promise<string> => {
    const image = await w.import({ source: path(name) });
    assertReady(image);
    return `${image.format} ${image.kind} ${image.virtual_size_bytes}`;
  };
  assert.equal(await facts("plain.qcow2"), `raw disk ${MIB}`);
  assert.equal(await facts("ext4.img"), `raw rootfs ${8 * MIB}`);
  assert.equal(await facts("ext4.raw"), `qcow2 rootfs ${8 * MIB}`);
  assert.match(await facts("compressed"), /^qcow2 (disk|rootfs) /);
  await tool(w, "qemu-img", ["convert", "-f", "raw", "-O", "vmdk", path("ext4.img"), path("disk.raw")]);
  const refused = await w.import({ source: path("disk.raw") });
  assert.equal(refused.error?.code, "IMAGE_MALFORMED");
  assert.match(refused.error?.message ?? "", /VMDK/);
});

test("a disk that would open another file or ends early is refused", async (t) => {
  if (!requireTool(t, "qemu-img")) return;
  const w = await createImageWorld(t);
  const path = (name: string): string => join(w.directory, name);
  await writeFile(path("base"), Buffer.alloc(MIB, 3));
  const img = async (...args: string[]): Promise<void> => await tool(w, "qemu-img", args);
  await img("create", "-q", "-f", "qcow2", "-b", "/etc/shadow", "-F", "raw", "-u", path("backing"), "1M");
  await img("create", "-q", "-f", "qcow2", "-o", `data_file=${path("data")}`, path("external"), "1M");
  await img("create", "-q", "-f", "qcow2", path("encrypted"), "1M");
  await patch(path("encrypted"), 35, 2);
  await img("convert", "-f", "raw", "-O", "qcow2", path("base"), path("cut"));
  await truncate(path("cut"), (await stat(path("cut"))).size - 3 * 65_536);
  await tool(w, "mke2fs", ["-q", "-F", "-t", "ext4", path("short"), "8M"]);
  await truncate(path("short"), 5 * MIB);
  await writeFile(path("empty"), "");
  await mkdir(path("directory"));
  const cases = [
    ["backing", "IMAGE_MALFORMED", /backing file/],
    ["external", "IMAGE_MALFORMED", /external data file/],
    ["encrypted", "IMAGE_MALFORMED", /encrypted/],
    ["cut", "IMAGE_TRUNCATED", /ends before/],
    ["short", "IMAGE_TRUNCATED", /says it needs/],
    ["empty", "IMAGE_TRUNCATED", /only 0 bytes/],
    ["directory", "IMAGE_SOURCE_INVALID", /no file/],
  ] as const;
  for (const [name, code, message] of cases) {
    const image = await w.import({ source: path(name) });
    assert.equal(image.error?.code, code, `${name}: ${String(image.error?.message)}`);
    assert.match(image.error?.message ?? "", message);
  }
  await assert.rejects(w.images.create({ source: path("missing") }), { code: "IMAGE_SOURCE_UNREACHABLE" });
  assert.deepEqual(await w.listState(), []);
});

test("a digest is checked where given and demanded for the network", async (t) => {
  const w = await createImageWorld(t);
  const path = join(w.directory, "disk");
  const data = Buffer.alloc(3 * MIB, 5);
  await writeFile(path, data);
  const wrong = await w.import({ source: path, sha256: "0".repeat(64) });
  assert.equal(wrong.error?.code, "IMAGE_DIGEST_MISMATCH");
  assert.deepEqual(await w.listState(), []);
  assertReady(await w.import({ source: path, sha256: sha256(data) }));
  await assert.rejects(w.images.create({ source: "http://127.0.0.1:1/x" }), { code: "REQUEST_INVALID", message: /sha256/ });
  await assert.rejects(w.images.create({ source: path, size_gib: 1 }), { code: "REQUEST_INVALID", message: /size_gib/ });
});

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

async function serve(t: TestContext, handler: Handler): Promise<{ readonly url: string; readonly requests: IncomingMessage[] }> {
  const requests: IncomingMessage[] = [];
  const server: Server = createServer((request, response) => {
    requests.push(request);
    handler(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo; // it listens on TCP
  return { url: `http://127.0.0.1:${port}`, requests };
}

function* endlessly(): Iterable<Buffer> {
  for (;;) yield Buffer.alloc(64 << 10);
}

function patterned(bytes: number): Buffer {
  const data = Buffer.alloc(bytes);
  for (let index = 0; index < bytes; index += 4096) data.writeUInt32LE(index, index);
  return data;
}

test("an interrupted download goes on where it stopped", async (t) => {
  const w = await createImageWorld(t);
  const data = patterned(4 * MIB);
  const server = await serve(t, (request, response) => {
    const from = Number(/bytes=(\d+)-/.exec(request.headers.range ?? "")?.[1] ?? 0);
    const rest = data.subarray(from);
    response.writeHead(from > 0 ? 206 : 200, {
      "content-length": rest.length,
      etag: '"v1"',
      ...(from > 0 ? { "content-range": `bytes ${from}-${data.length - 1}/${data.length}` } : {}),
    });
    // The connection breaks after a mebibyte each time.
    if (rest.length <= MIB) response.end(rest);
    else response.write(rest.subarray(0, MIB), () => setImmediate(() => response.destroy()));
  });
  const image = await w.import({ source: `${server.url}/disk.img`, sha256: sha256(data) });
  assertReady(image);
  assert.ok(server.requests.length >= 4);
  assert.ok(server.requests.slice(1).every((request) => request.headers["if-range"] === '"v1"'));
  assert.ok((await readFile(w.images.resolve(image.id).diskPath)).equals(data));
});

test("redirects are followed and counted", async (t) => {
  const w = await createImageWorld(t);
  const data = patterned(MIB);
  const server = await serve(t, (request, response) => {
    const hops = Number(request.url?.slice(1));
    if (Number.isNaN(hops)) response.writeHead(302, { location: request.url === "/file" ? "file:///etc/passwd" : "/loop" }).end();
    else if (hops > 0) response.writeHead(302, { location: `/${hops - 1}` }).end("moved");
    else response.writeHead(200, { "content-length": data.length }).end(data);
  });
  assertReady(await w.import({ source: `${server.url}/3`, sha256: sha256(data) }));
  for (const path of ["loop", "file", "6"]) {
    const image = await w.import({ source: `${server.url}/${path}`, sha256: sha256(data) });
    assert.equal(image.error?.code, "IMAGE_SOURCE_UNREACHABLE", path);
  }
});

test("a server that lies, refuses or sends too much leaves nothing", async (t) => {
  const w = await createImageWorld(t, { limits: { maxUnpackedBytes: 2 * MIB } });
  const data = patterned(MIB);
  const server = await serve(t, (request, response) => {
    switch (request.url) {
      case "/other":
        return void response.writeHead(200).end(Buffer.alloc(MIB, 1));
      case "/large":
        return void response.writeHead(200, { "content-length": 3 * MIB }).end(Buffer.alloc(3 * MIB));
      case "/endless":
        response.writeHead(200);
        return void pipeline(Readable.from(endlessly()), response).catch(() => undefined); // the client goes away
      case "/cut":
        response.writeHead(200, { "content-length": data.length });
        return void response.write(data.subarray(0, 1000), () => setImmediate(() => response.destroy()));
      default:
        return void response.writeHead(404).end("no");
    }
  });
  const expected = [
    ["other", "IMAGE_DIGEST_MISMATCH"],
    ["large", "IMAGE_TOO_LARGE"],
    ["endless", "IMAGE_TOO_LARGE"],
    ["cut", "IMAGE_SOURCE_UNREACHABLE"],
    ["missing", "IMAGE_SOURCE_UNREACHABLE"],
  ] as const;
  for (const [path, code] of expected) {
    const image = await w.import({ source: `${server.url}/${path}`, sha256: sha256(data) });
    assert.equal(image.error?.code, code, `${path}: ${String(image.error?.message)}`);
  }
  const nobody = await w.import({ source: "http://127.0.0.1:1/x", sha256: sha256(data) });
  assert.equal(nobody.error?.code, "IMAGE_SOURCE_UNREACHABLE");
  assert.deepEqual(await w.listState(), []);
});

test("deleting an image ends its download", async (t) => {
  const w = await createImageWorld(t);
  const started = Promise.withResolvers<void>();
  const closed = Promise.withResolvers<void>();
  const server = await serve(t, (_request, response) => {
    response.writeHead(200, { "content-length": 10 * MIB }).write(Buffer.alloc(1000, 1));
    response.on("close", closed.resolve);
    started.resolve();
  });
  const image = await w.images.create({ source: `${server.url}/slow`, sha256: "0".repeat(64), name: "slow" });
  await started.promise;
  const waiting = assert.rejects(w.images.wait("slow", { signal: w.signal, timeoutMs: 60_000 }), { code: "IMAGE_NOT_FOUND" });
  await w.images.delete(image.id);
  await closed.promise;
  await waiting;
  assert.deepEqual(w.images.list(), []);
  assert.deepEqual(await w.listState(), []);
});

/** docker:// from a registry on loopback. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import test from "node:test";
import { requireTool } from "@fluxvm/host/testing";
import { assertReady, createImageWorld, createLayout, pushImage, readDiskFile, startRegistry } from "../testing/index.ts";
import { isLoopback } from "./pull.ts";

test("an image is pulled, and pulled again in no time", async (t) => {
  if (!requireTool(t, "docker-registry") || !requireTool(t, "skopeo")) return;
  const w = await createImageWorld(t);
  const registry = await startRegistry(t, w);
  const layout = await createLayout(join(w.directory, "layout"));
  await layout.image({ tag: "v1", layers: [{ items: [{ name: "from", content: "registry" }] }], config: { Cmd: ["/x"], Env: ["A=b"] } });
  const reference = `${registry}/team/app:v1`;
  await pushImage(w, `oci:${layout.directory}:v1`, reference);

  const image = await w.import({ source: `docker://${reference}` });
  assertReady(image);
  assert.equal(image.name, `docker://${reference}`);
  assert.deepEqual(image.config?.cmd, ["/x"]);
  assert.equal(await readDiskFile(w.images.resolve(image.id).diskPath, "/from"), "registry");

  const again = await w.images.create({ source: `docker://${reference}` });
  assert.equal(again.id, image.id);
  const alias = await w.import({ source: `docker://${reference}`, name: "alias" });
  assert.equal(alias.digest, image.digest);
  assert.equal((await w.listState()).filter((path) => path.endsWith("disk.raw")).length, 1);
  await w.images.delete(image.id);
  assertReady(w.images.get("alias"));
  assert.equal(await readDiskFile(w.images.resolve("alias").diskPath, "/from"), "registry");

  const missing = await w.import({ source: `docker://${registry}/team/app:v2` });
  assert.equal(missing.error?.code, "IMAGE_SOURCE_UNREACHABLE");
  assert.match(missing.error?.message ?? "", /manifest unknown/);
  await w.images.delete("alias");
  assert.deepEqual(await w.listState(), []);
});

test("an index gives this machine's image", async (t) => {
  if (!requireTool(t, "docker-registry") || !requireTool(t, "skopeo")) return;
  const w = await createImageWorld(t);
  const registry = await startRegistry(t, w);
  const layout = await createLayout(join(w.directory, "layout"));
  const architecture = process.arch === "x64" ? "amd64" : process.arch;
  const manifests = [];
  for (const arch of ["s390x", architecture]) {
    const made = await layout.image({ tag: arch, architecture: arch, layers: [{ items: [{ name: "arch", content: arch }] }] });
    await pushImage(w, `oci:${layout.directory}:${arch}`, `${registry}/multi:${arch}`);
    manifests.push({ digest: made.manifestDigest, arch });
  }
  const sizes = await Promise.all(
    manifests.map(async ({ digest }) =>
      Number(
        (
          await fetch(`http://${registry}/v2/multi/manifests/${digest}`, {
            headers: { accept: "application/vnd.oci.image.manifest.v1+json" },
          })
        ).headers.get("content-length"),
      ),
    ),
  );
  const mediaType = "application/vnd.oci.image.index.v1+json";
  const list = manifests.map(({ digest, arch }, index) => ({
    mediaType: "application/vnd.oci.image.manifest.v1+json",
    digest,
    size: sizes[index],
    platform: { os: "linux", architecture: arch },
  }));
  const put = await fetch(`http://${registry}/v2/multi/manifests/latest`, {
    method: "PUT",
    headers: { "content-type": mediaType },
    body: JSON.stringify({ schemaVersion: 2, mediaType, manifests: list }),
  });
  assert.equal(put.status, 201);
  const image = await w.import({ source: `docker://${registry}/multi` });
  assertReady(image);
  assert.equal(await readDiskFile(w.images.resolve(image.id).diskPath, "/arch"), architecture);
});

test("deleting an image ends its pull and all that works for it", async (t) => {
  if (!requireTool(t, "skopeo")) return;
  const w = await createImageWorld(t);
  const asked = Promise.withResolvers<void>();
  const gone = Promise.withResolvers<void>();
  const silent = createServer((_request, response) => {
    response.on("close", gone.resolve);
    asked.resolve();
  });
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  t.after(() => silent.close());
  const { port } = silent.address() as AddressInfo; // it listens on TCP
  const image = await w.images.create({ source: `docker://127.0.0.1:${port}/a`, name: "slow" });
  await asked.promise;
  await w.images.delete(image.id);
  await gone.promise;
  assert.deepEqual(await w.listState(), []);
});

test("a registry that is not there, and a skopeo that is not there", async (t) => {
  if (!requireTool(t, "skopeo")) return;
  const w = await createImageWorld(t);
  const nobody = await w.import({ source: "docker://127.0.0.1:1/a" });
  assert.equal(nobody.error?.code, "IMAGE_SOURCE_UNREACHABLE");
  const without = await createImageWorld(t, { tools: { skopeo: "/nonexistent/skopeo" } });
  const image = await without.import({ source: "docker://127.0.0.1:1/a" });
  assert.equal(image.error?.code, "HOST_TOOL_MISSING", String(image.error?.message));
  assert.deepEqual(await without.listState(), []);
});

test("plain HTTP is for this machine alone", () => {
  for (const reference of ["localhost/a", "localhost:5000/a", "127.0.0.1:5000/a/b", "127.8.8.8/a", "[::1]:5000/a"])
    assert.ok(isLoopback(reference), reference);
  for (const reference of ["localhost", "127.0.0.1.example.org/a", "example.org/localhost/a", "10.0.0.1/a", "localhost.example/a"]) {
    assert.ok(!isLoopback(reference), reference);
  }
});

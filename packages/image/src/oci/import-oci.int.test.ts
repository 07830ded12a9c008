/** OCI images end to end: what they unpack to, how they are told apart, and what is refused before anything is kept. */
import assert from "node:assert/strict";
import { mkdir, readFile, rename, rm, stat, symlink, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test, { type TestContext } from "node:test";
import { runTool } from "@fluxvm/host";
import { requireRoot, requireTool } from "@fluxvm/host/testing";
import {
  assertReady,
  blobPath,
  checkDisk,
  createImageWorld,
  createLayout,
  listDisk,
  readDiskFile,
  statDisk,
  type ImageWorld,
  type LayoutWriter,
} from "../testing/index.ts";

async function world(t: TestContext): Promise<{ readonly w: ImageWorld; readonly layout: LayoutWriter; readonly source: string }> {
  const w = await createImageWorld(t);
  const layout = await createLayout(join(w.directory, "layout"));
  return { w, layout, source: `oci:${layout.directory}` };
}

async function assertRefused(w: ImageWorld, source: string, expected: { readonly code: string; readonly message: RegExp }): Promise<void> {
  const image = await w.import({ source });
  assert.equal(image.state, "failed");
  assert.equal(image.error?.code, expected.code, String(image.error?.message));
  assert.match(image.error?.message ?? "", expected.message);
  assert.deepEqual(await w.listState(), [], "nothing may be left");
}

test("attributes of every kind arrive in the file system", async (t) => {
  if (!requireRoot(t)) return;
  const { w, layout, source } = await world(t);
  const capability = Buffer.from("0100000200200000000000000000000000000000", "hex");
  await layout.image({
    layers: [
      {
        items: [
          { name: "./", type: "5", mode: 0o755 },
          { name: "bin/", type: "5", mode: 0o751, uid: 7, gid: 8 },
          { name: "bin/su", content: "x".repeat(5000), mode: 0o4755, uid: 0, mtime: 1_234_567_890 },
          {
            name: "bin/ping",
            content: "p",
            mode: 0o755,
            pax: { "SCHILY.xattr.security.capability": capability, "SCHILY.xattr.user.note": "hello" },
          },
          { name: "bin/ping2", type: "1", link: "bin/ping" },
          { name: "sh", type: "2", link: "/bin/su", uid: 3 },
          { name: "pipe", type: "6", mode: 0o620, uid: 1_000_000 },
          { name: `deep/${"d".repeat(120)}/${"f".repeat(200)}`, content: "long" },
          { name: "sticky/", type: "5", mode: 0o1777 },
          { name: "sparse", content: "ab", pax: { "GNU.sparse.size": "10000000", "GNU.sparse.map": "0,1,9999999,1" } },
          { name: "ignored", content: "", pax: { "SCHILY.xattr.trusted.overlay.opaque": "y", "SCHILY.xattr.security.selinux": "x" } },
        ],
      },
    ],
  });
  const image = await w.import({ source });
  assertReady(image);
  const { diskPath } = w.images.resolve(image.id);
  await checkDisk(diskPath);
  const root = await listDisk(diskPath, "/");
  assert.equal(root.get("pipe")?.mode, "10620");
  assert.equal(root.get("pipe")?.uid, 1_000_000);
  assert.equal(root.get("sticky")?.mode, "41777");
  assert.equal(root.get("sparse")?.size, 10_000_000);
  assert.deepEqual([root.get("bin")?.mode, root.get("bin")?.uid, root.get("bin")?.gid], ["40751", 7, 8]);
  assert.match(await statDisk(diskPath, "/sh"), /Fast link dest: "\/bin\/su"/);
  const bin = await listDisk(diskPath, "/bin");
  assert.equal(bin.get("su")?.mode, "104755");
  assert.equal(bin.get("ping")?.inode, bin.get("ping2")?.inode);
  assert.match(await statDisk(diskPath, "/bin/su"), /mtime: 0x499602d2/);
  const ping = await statDisk(diskPath, "/bin/ping");
  assert.match(ping, /user\.note \(5\)/);
  assert.match(ping, /security\.capability \(20\)/);
  assert.doesNotMatch(await statDisk(diskPath, "/ignored"), /trusted|selinux/);
  assert.equal(await readDiskFile(diskPath, `/deep/${"d".repeat(120)}/${"f".repeat(200)}`), "long");
  assert.equal((await stat(diskPath)).mode & 0o777, 0o444);
});

test("layers of each compression build on one another", async (t) => {
  const { w, layout, source } = await world(t);
  await layout.image({
    layers: [
      {
        items: [
          { name: "a", content: "1" },
          { name: "gone", content: "1" },
          { name: "d/", type: "5" },
          { name: "d/old", content: "1" },
        ],
        compression: "none",
      },
      { items: [{ name: ".wh.gone" }, { name: "a", content: "2" }], compression: "zstd" },
      { items: [{ name: "d/.wh..wh..opq" }, { name: "d/new", content: "3" }], compression: "gzip" },
      { items: [] },
    ],
    config: {
      Entrypoint: ["/a"],
      Cmd: ["b", "c"],
      Env: ["K=v"],
      User: "me:us",
      WorkingDir: "/d",
      StopSignal: "SIGQUIT",
      Labels: { l: "m" },
    },
  });
  const image = await w.import({ source });
  assertReady(image);
  const { diskPath } = w.images.resolve(image.id);
  assert.deepEqual([...(await listDisk(diskPath, "/")).keys()].toSorted(), ["a", "d"]);
  assert.deepEqual([...(await listDisk(diskPath, "/d")).keys()], ["new"]);
  assert.equal(await readDiskFile(diskPath, "/a"), "2");
  assert.deepEqual(image.config, {
    entrypoint: ["/a"],
    cmd: ["b", "c"],
    env: ["K=v"],
    user: "me:us",
    working_dir: "/d",
    stop_signal: "SIGQUIT",
    labels: { l: "m" },
  });
});

test("the same inputs give the same bytes and the same digest; a size is an input", async (t) => {
  const bytes: Buffer[] = [];
  const digests = new Set<string>();
  for (const size_gib of [undefined, undefined, 0.25]) {
    const { w, layout, source } = await world(t);
    await layout.image({
      layers: [
        {
          items: [
            { name: "a/b", content: "1" },
            { name: "c", type: "2", link: "a" },
          ],
        },
      ],
    });
    const image = await w.import({ source, ...(size_gib === undefined ? {} : { size_gib }) });
    digests.add(image.digest ?? "");
    if (size_gib !== undefined) assert.equal(image.virtual_size_bytes, 2 ** 28);
    bytes.push(await readFile(w.images.resolve(image.id).diskPath));
  }
  assert.ok(bytes[0]?.equals(bytes[1] ?? Buffer.alloc(0)));
  assert.equal(digests.size, 2);
});

test("a tag and this machine's architecture choose among several", async (t) => {
  const { w, layout, source } = await world(t);
  await layout.image({ tag: "one", layers: [{ items: [{ name: "one", content: "" }] }] });
  await layout.image({ tag: "two", layers: [{ items: [{ name: "two", content: "" }] }] });
  const image = await w.import({ source: `${source}:two` });
  assert.ok((await listDisk(w.images.resolve(image.id).diskPath, "/")).has("two"));
  const ambiguous = await w.import({ source });
  assert.match(ambiguous.error?.message ?? "", /several images.*one, two/);
  const unknown = await w.import({ source: `${source}:three` });
  assert.equal(unknown.error?.code, "IMAGE_SOURCE_INVALID");

  const multi = await createLayout(join(w.directory, "multi"));
  const foreign = await multi.image({ layers: [], architecture: "s390x" });
  const ours = await multi.image({ layers: [{ items: [{ name: "ours", content: "" }] }] });
  const architecture = process.arch === "x64" ? "amd64" : process.arch;
  const entry = async (digest: string, arch: string): Promise<Record<string, unknown>> => ({
    digest,
    size: (await stat(blobPath(multi.directory, digest))).size,
    platform: { os: "linux", architecture: arch },
  });
  const list = [await entry(foreign.manifestDigest, "s390x"), await entry(ours.manifestDigest, architecture)];
  const index = await multi.blob(
    Buffer.from(JSON.stringify({ schemaVersion: 2, manifests: list })),
    "application/vnd.oci.image.index.v1+json",
  );
  await multi.index([{ ...index }]);
  const chosen = await w.import({ source: `oci:${multi.directory}` });
  assertReady(chosen);
  await multi.index([await entry(foreign.manifestDigest, "s390x")]);
  const wrong = await w.import({ source: `oci:${multi.directory}`, name: "wrong" });
  assert.match(wrong.error?.message ?? "", /s390x/);
});

test("an archive is read in place, whoever wrote it", async (t) => {
  if (!requireTool(t, "skopeo") || !requireTool(t, "umoci")) return;
  const { w, layout } = await world(t);
  await layout.image({ tag: "x", layers: [{ items: [{ name: "hello", content: "from an archive" }] }] });
  const archive = join(w.directory, "image.tar");
  const tool = async (command: string, args: readonly string[]): Promise<void> =>
    void (await runTool({ command, args, timeoutMs: 60_000, signal: w.signal, env: { HOME: w.directory } }));
  await tool("skopeo", ["copy", "--quiet", `oci:${layout.directory}:x`, `oci-archive:${archive}:x`]);
  const image = await w.import({ source: `oci-archive:${archive}` });
  assertReady(image);
  assert.equal(await readDiskFile(w.images.resolve(image.id).diskPath, "/hello"), "from an archive");

  const bundle = join(w.directory, "bundle");
  const made = join(w.directory, "umoci");
  await tool("umoci", ["init", "--layout", made]);
  await tool("umoci", ["new", "--image", `${made}:busybox`]);
  await tool("umoci", ["unpack", "--image", `${made}:busybox`, bundle]);
  await mkdir(join(bundle, "rootfs", "bin"), { recursive: true });
  await tool("cp", ["/bin/busybox", join(bundle, "rootfs", "bin", "busybox")]);
  await symlink("busybox", join(bundle, "rootfs", "bin", "sh"));
  await tool("umoci", ["repack", "--image", `${made}:busybox`, bundle]);
  await tool("umoci", ["config", "--image", `${made}:busybox`, "--config.cmd", "/bin/sh"]);
  const busybox = await w.import({ source: `oci:${made}:busybox` });
  assertReady(busybox);
  assert.deepEqual(busybox.config?.cmd, ["/bin/sh"]);
  assert.ok((await listDisk(w.images.resolve(busybox.id).diskPath, "/bin")).has("busybox"));
});

test("a damaged archive is refused", async (t) => {
  if (!requireTool(t, "skopeo")) return;
  const { w, layout } = await world(t);
  await layout.image({ tag: "x", layers: [{ items: [{ name: "big", content: "z".repeat(100_000) }], compression: "none" }] });
  const archive = join(w.directory, "image.tar");
  await runTool({ command: "tar", args: ["-C", layout.directory, "-cf", archive, "."], timeoutMs: 60_000, signal: w.signal });
  const { size } = await stat(archive);
  await truncate(archive, size - 90_000);
  await assertRefused(w, `oci-archive:${archive}`, { code: "IMAGE_TRUNCATED", message: /ends within/ });
  await writeFile(archive, "this is no archive, but long enough to be looked at".repeat(40));
  await assertRefused(w, `oci-archive:${archive}`, { code: "IMAGE_MALFORMED", message: /checksum/ });
});

test("a blob that is cut off, changed or too long is named", async (t) => {
  const { w, layout, source } = await world(t);
  const written = await layout.image({ layers: [{ items: [{ name: "a", content: "x".repeat(100_000) }] }] });
  const [layer = ""] = written.layerDigests;
  const path = blobPath(layout.directory, layer);
  const good = await readFile(path);
  await writeFile(path, good.subarray(0, good.length - 10));
  await assertRefused(w, source, { code: "IMAGE_TRUNCATED", message: new RegExp(layer) });
  for (const at of [0, 12, good.length >> 1, good.length - 1]) {
    const changed = Buffer.from(good);
    changed[at] = (changed[at] ?? 0) ^ 0x55;
    await writeFile(path, changed);
    await assertRefused(w, source, { code: "IMAGE_DIGEST_MISMATCH", message: new RegExp(layer) });
  }
  await writeFile(path, Buffer.concat([good, Buffer.from("more")]));
  await assertRefused(w, source, { code: "IMAGE_DIGEST_MISMATCH", message: new RegExp(layer) });
  await rm(path);
  await assertRefused(w, source, { code: "IMAGE_MALFORMED", message: /no readable file "blobs/ });
  await writeFile(path, good);
  await writeFile(blobPath(layout.directory, written.configDigest), "{}");
  await assertRefused(w, source, { code: "IMAGE_TRUNCATED", message: new RegExp(written.configDigest) });
});

test("a layer that is not the one the configuration means is refused", async (t) => {
  const { w, layout, source } = await world(t);
  const one = await layout.image({ tag: "x", layers: [{ items: [{ name: "a", content: "1" }] }] });
  const manifest = JSON.parse(await readFile(blobPath(layout.directory, one.manifestDigest), "utf8")) as { layers: unknown[] };
  const other = await layout.image({ tag: "y", layers: [{ items: [{ name: "a", content: "2" }] }] });
  const swapped = JSON.parse(await readFile(blobPath(layout.directory, other.manifestDigest), "utf8")) as { layers: unknown[] };
  const blob = await layout.blob(
    Buffer.from(JSON.stringify({ ...manifest, layers: swapped.layers })),
    "application/vnd.oci.image.manifest.v1+json",
  );
  await layout.index([{ ...blob }]);
  await assertRefused(w, source, { code: "IMAGE_DIGEST_MISMATCH", message: /configuration says/ });
});

test("links of a layout lead nowhere outside", async (t) => {
  const { w, layout, source } = await world(t);
  const written = await layout.image({ layers: [{ items: [{ name: "a", content: "1" }] }] });
  const path = blobPath(layout.directory, written.layerDigests[0] ?? "");
  const outside = join(w.directory, "outside");
  await rename(path, outside);
  await symlink(outside, path);
  await assertRefused(w, source, { code: "IMAGE_LAYER_UNSAFE", message: /leads outside/ });
  await rm(path);
  const inside = join(layout.directory, "elsewhere");
  await rename(outside, inside);
  await symlink("../../elsewhere", path);
  const image = await w.import({ source });
  assertReady(image);
  await w.images.delete(image.id);
  await rename(join(layout.directory, "blobs"), join(w.directory, "blobs"));
  await symlink(join(w.directory, "blobs"), join(layout.directory, "blobs"));
  await assertRefused(w, source, { code: "IMAGE_LAYER_UNSAFE", message: /leads outside/ });
  await rm(join(layout.directory, "index.json"));
  await symlink("/etc/passwd", join(layout.directory, "index.json"));
  await assertRefused(w, source, { code: "IMAGE_LAYER_UNSAFE", message: /index\.json/ });
});

test("documents that are none are refused", async (t) => {
  const { w, layout, source } = await world(t);
  await layout.image({ layers: [] });
  const cases: readonly (readonly [unknown, RegExp])[] = [
    ["not json {", /no JSON/],
    [[], /no JSON object/],
    [{}, /neither an index/],
    [{ manifests: [] }, /empty/],
    [{ manifests: [{ digest: "md5:00", size: 1 }] }, /not sha256/],
    [{ manifests: [{ digest: `sha256:${"0".repeat(64)}`, size: -1 }] }, /is no size/],
    [{ manifests: [{ digest: `sha256:../../../../etc/passwd${"0".repeat(40)}`, size: 1 }] }, /not sha256/],
    [{ manifests: [{ digest: `sha256:${"0".repeat(64)}`, size: 10 }] }, /no readable file/],
  ];
  for (const [content, message] of cases) {
    await writeFile(join(layout.directory, "index.json"), typeof content === "string" ? content : JSON.stringify(content));
    const image = await w.import({ source });
    assert.equal(image.state, "failed");
    assert.match(image.error?.message ?? "", message);
  }
  assert.deepEqual(await w.listState(), []);
  await assert.rejects(w.images.create({ source: `oci:${w.directory}/missing` }), { code: "IMAGE_SOURCE_UNREACHABLE" });
});

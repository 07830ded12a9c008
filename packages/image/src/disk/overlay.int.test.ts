/** What we write is what QEMU reads: overlays are checked with qemu-img. */
import assert from "node:assert/strict";
import { open, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "node:test";
import { runTool } from "@fluxvm/host";
import { requireTool } from "@fluxvm/host/testing";
import { assertReady, createImageWorld, type ImageWorld } from "../testing/index.ts";

const GIB = 2 ** 30;

async function qemuImg(w: ImageWorld, args: readonly string[]): Promise<string> {
  return (await runTool({ command: "qemu-img", args, timeoutMs: 60_000, signal: w.signal })).stdout;
}

test("overlays of any size pass qemu-img's check and show the base", async (t) => {
  if (!requireTool(t, "qemu-img")) return;
  const w = await createImageWorld(t);
  const base = join(w.directory, "base.raw");
  await writeFile(base, Buffer.concat([Buffer.alloc(100_000, 7), Buffer.alloc(24_480)]));
  const image = await w.import({ source: base });
  assertReady(image);
  const ready = w.images.resolve(image.id);
  assert.equal(ready.virtualSizeBytes % 512, 0);
  for (const sizeBytes of [ready.virtualSizeBytes, 2 ** 29, 2 ** 29 + 512, 10 * GIB, 8 * 1024 * GIB, 16 * 1024 * GIB]) {
    const path = join(w.directory, `overlay-${sizeBytes}.qcow2`);
    await w.images.createOverlay({ image: ready, path, sizeBytes, signal: w.signal });
    await qemuImg(w, ["check", "-f", "qcow2", path]);
    const info = JSON.parse(await qemuImg(w, ["info", "--output=json", path])) as Record<string, unknown>;
    assert.equal(info["virtual-size"], sizeBytes);
    assert.equal(info["backing-filename"], ready.diskPath);
    assert.equal(info["backing-filename-format"], "raw");
    assert.ok((await stat(path)).blocks * 512 < 1 << 20, "it is sparse");
    const dump = join(w.directory, "dump.raw");
    if (sizeBytes > GIB) continue;
    await qemuImg(w, ["convert", "-f", "qcow2", "-O", "raw", path, dump]);
    assert.ok((await readFile(dump)).subarray(0, 124_416).equals((await readFile(base)).subarray(0, 124_416)));
  }
});

test("what a guest writes stays in its overlay", async (t) => {
  if (!requireTool(t, "qemu-img") || !requireTool(t, "qemu-io")) return;
  const w = await createImageWorld(t);
  const base = join(w.directory, "base.raw");
  await writeFile(base, Buffer.alloc(1 << 20, 7));
  const image = await w.import({ source: base });
  const ready = w.images.resolve(image.id);
  const path = join(w.directory, "o.qcow2");
  await w.images.createOverlay({ image: ready, path, sizeBytes: GIB, signal: w.signal });
  const commands = ["write -P 9 0 4k", "write -P 9 1000M 64k", "read -P 9 0 4k", "read -P 7 4k 64k", "read -P 0 900M 4k"];
  const { stdout } = await runTool({
    command: "qemu-io",
    args: [...commands.flatMap((command) => ["-c", command]), path],
    timeoutMs: 60_000,
    signal: w.signal,
  });
  assert.doesNotMatch(stdout, /failed/i);
  await qemuImg(w, ["check", "-f", "qcow2", path]);
  assert.ok((await readFile(ready.diskPath)).every((byte) => byte === 7));
});

test("an overlay over qcow2 names that format, and another path where the VMM sees another", async (t) => {
  if (!requireTool(t, "qemu-img")) return;
  const w = await createImageWorld(t);
  const base = join(w.directory, "base.qcow2");
  await qemuImg(w, ["create", "-q", "-f", "qcow2", base, "64M"]);
  const image = await w.import({ source: base });
  assert.equal(image.format, "qcow2");
  const path = join(w.directory, "o.qcow2");
  await w.images.createOverlay({ image: w.images.resolve(image.id), path, backingPath: "/disks/base", sizeBytes: GIB, signal: w.signal });
  const info = JSON.parse(await qemuImg(w, ["info", "--output=json", path])) as Record<string, unknown>;
  assert.equal(info["backing-filename"], "/disks/base");
  assert.equal(info["backing-filename-format"], "qcow2");
});

test("a disk never shrinks, and a refused overlay leaves no file", async (t) => {
  const w = await createImageWorld(t);
  const base = join(w.directory, "base.raw");
  const handle = await open(base, "w");
  await handle.truncate(GIB / 4);
  await handle.close();
  const image = await w.import({ source: base });
  assertReady(image);
  assert.ok((image.stored_bytes ?? 0) < 1 << 20, "holes stay holes");
  const ready = w.images.resolve(image.id);
  const path = join(w.directory, "o.qcow2");
  await assert.rejects(w.images.createOverlay({ image: ready, path, sizeBytes: GIB / 8, signal: w.signal }), {
    code: "DISK_SHRINK_REFUSED",
  });
  for (const sizeBytes of [0, -1, 1.5, Number.NaN, 2 ** 50]) {
    await assert.rejects(w.images.createOverlay({ image: ready, path, sizeBytes, signal: w.signal }), { code: "REQUEST_INVALID" });
  }
  await assert.rejects(w.images.createOverlay({ image: ready, path, sizeBytes: GIB, signal: AbortSignal.abort() }), { name: "AbortError" });
  await assert.rejects(stat(path), { code: "ENOENT" });
  await assert.rejects(stat(`${path}.partial`), { code: "ENOENT" });
});

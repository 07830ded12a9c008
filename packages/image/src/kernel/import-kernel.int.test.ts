/** Kernels of Debian, of files and of nobody. */
import assert from "node:assert/strict";
import { mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "node:test";
import { gzipSync, zstdCompressSync } from "node:zlib";
import type { CreateKernelRequest, KernelView } from "@fluxvm/contracts";
import { runTool } from "@fluxvm/host";
import { requireTool } from "@fluxvm/host/testing";
import { createImageWorld, makeBzImage, makeElf, makeModule, type ImageWorld } from "../testing/index.ts";
import { explainNoPvh } from "./elf.ts";

async function importKernel(w: ImageWorld, request: CreateKernelRequest): Promise<KernelView> {
  const { id } = await w.kernels.create(request);
  return await w.kernels.wait(id, { signal: w.signal, timeoutMs: 240_000 });
}

/** Names in an initrd, by the tool that everybody has. */
async function listInitrd(w: ImageWorld, path: string): Promise<string[]> {
  const { stdout } = await runTool({
    command: "sh",
    args: ["-c", 'cpio -t --quiet < "$1"', "sh", path],
    timeoutMs: 30_000,
    signal: w.signal,
  });
  return stdout.trim().split("\n");
}

async function readInitrdFile(w: ImageWorld, path: string, name: string): Promise<string> {
  const args = ["-c", 'cpio -i --quiet --to-stdout "$2" < "$1"', "sh", path, name];
  return (await runTool({ command: "sh", args, timeoutMs: 30_000, signal: w.signal })).stdout;
}

test("Debian's cloud kernel becomes a PVH kernel with the modules a guest needs", async (t) => {
  if (!requireTool(t, "apt-get") || !requireTool(t, "cpio")) return;
  const w = await createImageWorld(t);
  const kernel = await importKernel(w, { source: "debian:bookworm" });
  assert.equal(kernel.state, "ready", kernel.error?.message ?? "no error");
  assert.match(kernel.release ?? "", /^6\.1\.\d+-\d+-cloud-amd64$/);
  assert.equal(kernel.name, kernel.release);
  assert.ok(kernel.is_default && kernel.has_agent);
  const ready = w.kernels.resolve();
  assert.equal(ready.id, kernel.id);
  const elf = await readFile(ready.kernelPath);
  assert.equal(explainNoPvh(elf), undefined);
  assert.match(elf.toString("latin1"), new RegExp(`Linux version ${kernel.release?.replaceAll(".", "\\.") ?? ""} `));
  const initrd = ready.initrdPath ?? "";
  const names = await listInitrd(w, initrd);
  for (const name of ["init", "etc/fluxvm/modules", "proc", "sys", "dev", "newroot", "run", "dev/console"])
    assert.ok(names.includes(name), name);
  const boot = (await readInitrdFile(w, initrd, "etc/fluxvm/modules")).trim().split("\n");
  const late = (await readInitrdFile(w, initrd, "etc/fluxvm/modules.late")).trim().split("\n");
  const at = (name: string): number => boot.indexOf(`/lib/modules/${name}.ko`);
  for (const name of ["virtio_blk", "virtio_net", "virtio_console", "virtio_pci"]) assert.ok(at(name) >= 0, name);
  assert.ok(at("virtio") < at("virtio_pci") && at("virtio_ring") < at("virtio_pci"));
  assert.ok(at("failover") < at("net_failover") && at("net_failover") < at("virtio_net"));
  assert.ok(late.includes("/lib/modules/overlay.ko"));
  for (const path of [...boot, ...late]) assert.ok(names.includes(path.slice(1)), path);
  assert.equal((await stat(ready.kernelPath)).mode & 0o777, 0o444);
  assert.deepEqual(
    (await w.listState()).filter((path) => path.startsWith("tmp")),
    [],
  );
});

test("a bzImage with its modules, each packed in another way", async (t) => {
  if (!requireTool(t, "xz") || !requireTool(t, "cpio")) return;
  const w = await createImageWorld(t);
  const image = join(w.directory, "bzImage");
  await writeFile(image, makeBzImage({ payload: gzipSync(makeElf()), version: "9.9.9-test" }));
  const modules = join(w.directory, "modules");
  await mkdir(join(modules, "kernel", "drivers"), { recursive: true });
  const place = (name: string): string => join(modules, "kernel", "drivers", name);
  await writeFile(place("virtio_blk.ko"), makeModule({ depends: "virtio,virtio_ring" }));
  await writeFile(place("virtio.ko.gz"), gzipSync(makeModule({ depends: "" })));
  await writeFile(place("virtio_ring.ko.zst"), zstdCompressSync(makeModule({ depends: "virtio" })));
  await writeFile(place("virtio-pci.ko"), makeModule({ depends: "virtio_blk", softdep: "pre: overlay" }));
  await writeFile(place("overlay.ko"), makeModule({ depends: "fuse" }));
  await writeFile(place("fuse.ko"), makeModule({ depends: "overlay" }));
  await writeFile(place("never.ko"), makeModule({ depends: "" }));
  await runTool({ command: "xz", args: [place("overlay.ko")], timeoutMs: 30_000, signal: w.signal });
  const kernel = await importKernel(w, { source: image, modules });
  assert.equal(kernel.state, "ready", kernel.error?.message ?? "no error");
  assert.equal(kernel.release, "9.9.9-test");
  const initrd = w.kernels.resolve(kernel.id).initrdPath ?? "";
  const boot = (await readInitrdFile(w, initrd, "etc/fluxvm/modules")).trim().split("\n");
  const names = boot.map((path) => path.replace("/lib/modules/", "").replace(".ko", ""));
  // fuse and overlay need each other: a circle is walked once.
  assert.deepEqual(names, ["fuse", "overlay", "virtio", "virtio_ring", "virtio_blk", "virtio_pci"]);
  assert.ok(!(await listInitrd(w, initrd)).includes("lib/modules/never.ko"));
});

test("a bare payload needs no initrd; names, defaults and leases", async (t) => {
  const w = await createImageWorld(t);
  const path = join(w.directory, "payload.elf");
  await writeFile(path, makeElf());
  const bare = await importKernel(w, { source: path, initrd: false, name: "bare" });
  assert.equal(bare.state, "ready", bare.error?.message ?? "no error");
  assert.deepEqual([bare.has_agent, bare.release, bare.is_default], [false, undefined, true]);
  assert.equal(w.kernels.resolve("default").initrdPath, undefined);
  const withAgent = await importKernel(w, { source: path, name: "agent" });
  assert.ok(withAgent.has_agent && withAgent.is_default);
  assert.equal(w.kernels.get("bare").is_default, false);
  await assert.rejects(w.kernels.create({ source: path, name: "bare" }), { code: "KERNEL_NAME_TAKEN" });
  await assert.rejects(w.kernels.create({ source: path, name: "default" }), { code: "REQUEST_INVALID" });

  await w.store.commit([w.kernels.lease(bare.id, "vm-1")]);
  assert.deepEqual(w.kernels.get("bare").used_by, ["vm-1"]);
  await assert.rejects(w.kernels.delete("bare"), { code: "KERNEL_IN_USE", message: /vm-1/ });
  await w.store.commit(w.kernels.releaseLeases("vm-1"));
  await w.kernels.delete("bare");
  await w.kernels.delete("default");
  assert.throws(() => w.kernels.resolve(), { code: "KERNEL_NOT_FOUND" });
  assert.deepEqual(await w.listState(), []);
});

test("a new agent means a new kernel, which takes over as the default of its source", async (t) => {
  const w = await createImageWorld(t);
  const agent = join(w.directory, "agent");
  await writeFile(agent, "agent 1");
  const kernels = await createImageWorld(t, { tools: { guestAgent: agent } });
  const path = join(w.directory, "bzImage");
  await writeFile(path, makeBzImage({ payload: gzipSync(makeElf()), version: "1.2.3" }));
  const first = await importKernel(kernels, { source: path });
  assert.equal((await kernels.kernels.create({ source: path })).id, first.id);
  await writeFile(agent, "agent 2");
  const second = await importKernel(kernels, { source: path });
  assert.notEqual(second.id, first.id);
  assert.match(second.name, /^1\.2\.3-[0-9a-f]{8}$/);
  assert.equal(kernels.kernels.resolve().id, second.id);
});

test("what cannot boot is refused", async (t) => {
  const w = await createImageWorld(t);
  const file = async (name: string, content: Buffer): Promise<string> => {
    await writeFile(join(w.directory, name), content);
    return join(w.directory, name);
  };
  const cases = [
    [await file("text", Buffer.from("not a kernel")), "KERNEL_INVALID", /neither/],
    [await file("no-pvh", makeElf({ note: { name: "GNU\0", type: 3 } })), "KERNEL_INVALID", /PVH/],
    [await file("inner", makeBzImage({ payload: gzipSync(Buffer.from("x".repeat(100))) })), "KERNEL_INVALID", /no ELF/],
    [await file("cut", makeBzImage({ payload: gzipSync(makeElf()) }).subarray(0, 2700)), "KERNEL_INVALID", /cut off/],
    [w.directory, "IMAGE_SOURCE_INVALID", /no file/],
  ] as const;
  for (const [source, code, message] of cases) {
    const kernel = await importKernel(w, { source });
    assert.equal(kernel.error?.code, code, `${source}: ${String(kernel.error?.message)}`);
    assert.match(kernel.error?.message ?? "", message);
  }
  const good = await file("good", makeElf());
  const empty = join(w.directory, "empty");
  await mkdir(empty);
  assert.equal((await importKernel(w, { source: good, modules: empty })).error?.code, "KERNEL_INVALID");
  for (const request of [
    { source: "relative" },
    { source: "debian:bookworm+linux" },
    { source: "/a/../b" },
    { source: "debian:bookworm", modules: "/lib/modules/x" },
    { source: good, modules: empty, initrd: false },
  ]) {
    await assert.rejects(w.kernels.create(request), /Invalid/, JSON.stringify(request));
  }
  await assert.rejects(w.kernels.create({ source: "/nonexistent/kernel", initrd: false }), { code: "IMAGE_SOURCE_UNREACHABLE" });
  assert.equal((await importKernel(w, { source: "debian:nonesuch" })).error?.code, "IMAGE_SOURCE_INVALID");
  const without = await createImageWorld(t, { tools: { guestAgent: "/nonexistent/agent" } });
  await assert.rejects(without.kernels.create({ source: good }), { code: "HOST_TOOL_MISSING" });
  assert.deepEqual(await w.listState(), []);
});

/** A Debian root file system from this machine's own sources. Takes half a minute, so one image serves all questions. */
import assert from "node:assert/strict";
import test from "node:test";
import { requireRoot, requireTool } from "@fluxvm/host/testing";
import { assertReady, checkDisk, createImageWorld, listDisk, readDiskFile } from "../testing/index.ts";

test("debian:SUITE+package becomes a root file system without identity", async (t) => {
  if (!requireRoot(t) || !requireTool(t, "mmdebstrap")) return;
  const w = await createImageWorld(t);
  const image = await w.import({ source: "debian:bookworm+tini" });
  assertReady(image);
  assert.equal(image.kind, "rootfs");
  const { diskPath } = w.images.resolve(image.id);
  await checkDisk(diskPath);
  const etc = await listDisk(diskPath, "/etc");
  assert.ok(etc.has("debian_version"));
  for (const name of ["hostname", "resolv.conf"]) assert.ok(!etc.has(name), name);
  assert.equal((await readDiskFile(diskPath, "/etc/machine-id")).trim(), "");
  assert.deepEqual([...(await listDisk(diskPath, "/dev")).keys()], []);
  assert.ok((await listDisk(diskPath, "/usr/bin")).has("tini"));
  assert.equal((await listDisk(diskPath, "/usr/bin")).get("passwd")?.mode, "104755");
  assert.equal((await listDisk(diskPath, "/etc/apt/apt.conf.d")).has("99mmdebstrap"), false);
  assert.match(await readDiskFile(diskPath, "/var/lib/dpkg/status"), /^Package: tini$/m);
  assert.equal((await w.images.create({ source: "debian:bookworm+tini" })).id, image.id);
  const alias = await w.import({ source: "debian:bookworm+tini", name: "alias" });
  assert.equal(alias.digest, image.digest);

  const unknown = await w.import({ source: "debian:nonesuch" });
  assert.equal(unknown.error?.code, "IMAGE_SOURCE_INVALID");
  const missing = await w.import({ source: "debian:bookworm+no-such-package-anywhere" });
  assert.equal(missing.error?.code, "IMAGE_BUILD_FAILED", String(missing.error?.message));
  assert.match(missing.error?.message ?? "", /no-such-package-anywhere/);
  const without = await createImageWorld(t, { tools: { mmdebstrap: "/nonexistent/mmdebstrap" } });
  assert.equal((await without.import({ source: "debian:bookworm" })).error?.code, "HOST_TOOL_MISSING");
  await w.images.delete("alias");
  await w.images.delete(image.id);
  assert.deepEqual(await w.listState(), []);
});

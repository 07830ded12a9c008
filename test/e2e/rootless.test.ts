/** Without root: VMs run as the caller, still in QEMU's sandbox, with no network; what would need root is refused by name. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { it } from "node:test";
import { requireRoot } from "@fluxvm/host/testing";
import { isPlatformError } from "@fluxvm/sdk";
import { ensureBusyboxLayout, ensureKernelArtefact } from "../fixtures/artefacts.ts";
import { importImage, startDaemon, type TestDaemon } from "../fixtures/daemon.ts";
import { bootVm, shOutput } from "../fixtures/world.ts";

const UID = 64_130;

/** A copy that the daemon's user may read. */
function give(daemon: TestDaemon, source: string, name: string): string {
  const path = join(daemon.directory, name);
  execFileSync("cp", ["-r", source, path]);
  execFileSync("chown", ["-R", `${UID}:${UID}`, path]);
  return path;
}

it("boots, runs, survives its daemon and is deleted; a network is refused", async (t) => {
  if (!requireRoot(t)) return; // to become somebody else
  const daemon = await startDaemon(t, { uid: UID });
  const { bzImage, modules, release } = ensureKernelArtefact();
  const source = give(daemon, bzImage, "vmlinuz");
  const kernel = await daemon.client.kernels.create({ source, modules: give(daemon, modules, release), name: "test-kernel" });
  assert.equal((await daemon.client.kernels.wait(kernel.id, { timeoutSeconds: 120 })).state, "ready");
  const layout = /^oci:(.+):latest$/.exec(ensureBusyboxLayout())?.[1] ?? "";
  await importImage(daemon, `oci:${give(daemon, layout, "layout")}:latest`, "busybox");

  await assert.rejects(
    bootVm(daemon, { name: "networked", network: { mode: "user" } }),
    (error) => isPlatformError(error, "HOST_CAPABILITY_MISSING") && /root.*"none"/.test(error.message),
  );
  assert.deepEqual(await daemon.client.vms.list(), []);

  const { pid } = await bootVm(daemon, { name: "mine", network: { mode: "none" } });
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  assert.match(status, new RegExp(`^Uid:\t${UID}\t${UID}\t`, "m"));
  assert.match(status, /^Seccomp:\t2$/m);
  assert.match(status, /^NoNewPrivs:\t1$/m);
  assert.equal(await shOutput(daemon, "mine", "stat -c %u:%a /bin/busybox"), "0:755"); // owners as the image has them

  await daemon.kill();
  await daemon.start();
  assert.equal((await daemon.client.vms.get("mine")).pid, pid);
  assert.equal(await shOutput(daemon, "mine", "echo alive"), "alive");
});

/** The state directory's disk is full: new VMs are refused and leave nothing, old ones can be stopped and deleted. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, mkdirSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { it } from "node:test";
import { requireRoot } from "@fluxvm/host/testing";
import { isPlatformError } from "@fluxvm/sdk";
import { findLeftovers } from "../../tools/quickstart/leftovers.ts";
import { ensureBusyboxLayout } from "../fixtures/artefacts.ts";
import { importImage, importKernel, TestDaemon } from "../fixtures/daemon.ts";
import { bootVm, shOutput } from "../fixtures/world.ts";

/** Writes until not a block is free. */
function fill(path: string): void {
  const file = openSync(path, "w");
  try {
    for (let size = 1 << 20; size >= 1; size = Math.floor(size / 2)) writeWhileRoom(file, Buffer.alloc(size, 1));
  } finally {
    closeSync(file);
  }
}

function writeWhileRoom(file: number, block: Buffer): void {
  for (;;) {
    try {
      if (writeSync(file, block) < block.length) return;
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ENOSPC") return;
      throw error;
    }
  }
}

it("refuses what cannot be kept, lets go of what runs, and goes on when there is room again", async (t) => {
  if (!requireRoot(t)) return;
  const daemon = new TestDaemon({});
  mkdirSync(daemon.stateDir);
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=512m,mode=700", "tmpfs", daemon.stateDir]);
  const ballast = join(daemon.stateDir, "ballast");
  t.after(async () => {
    try {
      rmSync(ballast, { force: true });
      await daemon.close();
    } finally {
      execFileSync("umount", [daemon.stateDir]);
      daemon.remove();
    }
  });
  await daemon.start();
  await importKernel(daemon);
  await importImage(daemon, ensureBusyboxLayout(), "busybox");
  await bootVm(daemon, { name: "old" });

  fill(ballast);
  await assert.rejects(
    bootVm(daemon, { name: "new" }),
    (error) => isPlatformError(error, "HOST_OUT_OF_SPACE") && /full/.test(error.message),
  );
  assert.deepEqual(
    (await daemon.client.vms.list()).map((vm) => vm.name),
    ["old"],
  );
  assert.equal(await shOutput(daemon, "old", "echo alive"), "alive");
  assert.equal((await daemon.client.vms.stop("old")).state, "stopped");

  rmSync(ballast);
  await daemon.client.vms.delete("old");
  await bootVm(daemon, { name: "new" });
  await daemon.client.vms.delete("new");
  assert.deepEqual(findLeftovers(daemon.stateDir), []);
});

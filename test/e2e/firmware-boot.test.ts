/** Disks with a boot loader of their own start under SeaBIOS and under OVMF. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { it } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { writeBiosDisk, writeUefiDisk } from "../fixtures/bootable-disks.ts";
import { importImage, startDaemon, type TestDaemon } from "../fixtures/daemon.ts";

async function waitForConsole(daemon: TestDaemon, vm: string, pattern: RegExp, timeoutMs: number): Promise<string> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    let text = "";
    for await (const chunk of daemon.client.vms.logs(vm, { lines: 1000 })) text += Buffer.from(chunk).toString("latin1");
    if (pattern.test(text)) return text;
    if (Date.now() > deadline) throw new Error(`the console never showed ${pattern}: ${JSON.stringify(text.slice(-500))}`);
    await delay(200);
  }
}

it("boots a disk by BIOS", async (t) => {
  const daemon = await startDaemon(t);
  const disk = join(daemon.directory, "bios.raw");
  writeBiosDisk(disk, "FLUXVM BIOS BOOT");
  await importImage(daemon, disk, "bios-disk");
  await daemon.client.vms.create({
    name: "old",
    image: "bios-disk",
    firmware: "bios",
    memory_mib: 64,
    agent: { enabled: false },
    disk_size_gib: 0.01,
  });
  await waitForConsole(daemon, "old", /FLUXVM BIOS BOOT/, 60_000);
  const stopped = await daemon.client.vms.stop("old", { timeout_seconds: 1 });
  assert.equal(stopped.state, "stopped");
});

it("boots a disk by UEFI, and sees it power off", { timeout: 300_000 }, async (t) => {
  const daemon = await startDaemon(t);
  const disk = join(daemon.directory, "uefi.raw");
  writeUefiDisk(disk, join(daemon.directory, "grub"), "FLUXVM UEFI BOOT");
  await importImage(daemon, disk, "uefi-disk");
  await daemon.client.vms.create({ name: "new", image: "uefi-disk", firmware: "uefi", memory_mib: 256, agent: { enabled: false } });
  await waitForConsole(daemon, "new", /FLUXVM UEFI BOOT/, 180_000);
  const ended = await daemon.client.vms.wait("new", ["stopped", "failed"], { timeoutSeconds: 60 });
  assert.deepEqual([ended?.state, ended?.reason], ["stopped", "guest_shutdown"]);
});

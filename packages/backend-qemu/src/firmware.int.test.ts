/** Disks with their own boot loader, and disks as the guest sees them: the real QEMU with SeaBIOS and OVMF. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { chown, copyFile, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { runTool, systemClock } from "@fluxvm/host";
import { requireRoot, requireTool } from "@fluxvm/host/testing";
import type { DiskPlan, LaunchPlan, VmProcess } from "@fluxvm/vmm";
import { createBootSector } from "./testing/boot-disk.ts";
import { createQemuWorld, createRawDisk, type QemuWorld } from "./testing/index.ts";

const PATIENCE_MS = 60_000;
const call = (): { readonly signal: AbortSignal } => ({ signal: AbortSignal.timeout(PATIENCE_MS) });
const OVMF_VARS = "/usr/share/OVMF/OVMF_VARS_4M.fd";

async function withWorld(t: TestContext, run: (world: QemuWorld) => Promise<void>): Promise<void> {
  if (!requireRoot(t) || !requireTool(t, "qemu-system-x86_64") || !requireTool(t, "qemu-img")) return;
  const world = await createQemuWorld({ accelerator: "tcg" });
  try {
    await run(world);
  } finally {
    await world.close();
  }
}

async function boot(world: QemuWorld, plan: LaunchPlan): Promise<VmProcess> {
  const vm = await world.backend.launch(plan, call());
  await vm.boot(call());
  return vm;
}

async function waitForConsole(plan: LaunchPlan, pattern: RegExp): Promise<string> {
  const { signal } = call();
  for (;;) {
    const text = await readFile(plan.console.logPath, "latin1").catch(() => "");
    if (pattern.test(text)) return text;
    await systemClock.sleep(20, { signal });
  }
}

/** A qcow2 overlay over a qcow2 over a raw file with a boot sector: what a VM's root disk looks like. */
async function createChain(plan: LaunchPlan, text: string): Promise<DiskPlan> {
  const base = await createRawDisk(plan, "base.raw", 1024 * 1024);
  await writeFile(base, createBootSector(text), { flag: "r+" });
  const [middle, top] = [join(plan.workspace, "middle.qcow2"), join(plan.workspace, "root.qcow2")];
  for (const [path, below, format] of [
    [middle, base, "raw"],
    [top, middle, "qcow2"],
  ] as const) {
    const args = ["create", "-q", "-f", "qcow2", "-b", below, "-F", format, path];
    await runTool({ command: "qemu-img", args, timeoutMs: 10_000, signal: call().signal });
    await chown(path, plan.uid, plan.gid);
  }
  return {
    serial: "fluxvm-root",
    path: top,
    format: "qcow2",
    readonly: false,
    bootable: true,
    backing: [
      { path: middle, format: "qcow2" },
      { path: base, format: "raw" },
    ],
  };
}

test("a BIOS starts a disk's own boot loader through its chain of backing files", async (t) => {
  await withWorld(t, async (world) => {
    const plan = await world.plan({ kind: "idle" });
    const disk = await createChain(plan, "hello from the disk");
    const vm = await boot(world, { ...plan, boot: { kind: "firmware", firmware: "bios" }, disks: [disk] });
    assert.match(vm.record.machine, /^pc-q35-/);
    assert.equal((await vm.exited).reason, "guest_shutdown");
    assert.match(await world.readConsole(plan), /hello from the disk/);
  });
});

test("only the bootable disk is started", async (t) => {
  await withWorld(t, async (world) => {
    const plan = await world.plan({ kind: "idle" });
    const decoy = await createRawDisk(plan, "decoy.raw", 1024 * 1024);
    await writeFile(decoy, createBootSector("decoy"), { flag: "r+" });
    const disk = await createChain(plan, "hello from the disk");
    const other: DiskPlan = { serial: "fluxvm-seed", path: decoy, format: "raw", readonly: true, bootable: false, backing: [] };
    const vm = await boot(world, { ...plan, boot: { kind: "firmware", firmware: "bios" }, disks: [other, disk] });
    assert.equal((await vm.exited).reason, "guest_shutdown");
    assert.doesNotMatch(await world.readConsole(plan), /decoy/);
  });
});

test("UEFI firmware starts with variables of its own", async (t) => {
  if (!existsSync(OVMF_VARS)) return t.skip("needs the package ovmf");
  await withWorld(t, async (world) => {
    const plan = await world.plan({ kind: "idle" }, { memoryMib: 128 });
    const varsPath = join(plan.workspace, "firmware-vars.fd");
    await copyFile(OVMF_VARS, varsPath);
    await chown(varsPath, plan.uid, plan.gid);
    const disk = await createChain(plan, "not for UEFI");
    const vm = await boot(world, { ...plan, boot: { kind: "firmware", firmware: "uefi", varsPath }, disks: [disk] });
    await waitForConsole(plan, /BdsDxe: .*Boot/);
    assert.equal(await vm.status(call()), "running");
    await vm.kill(call());
  });
});

test("a direct boot of an emulated guest with an unknown counter uses q35 and works", async (t) => {
  await withWorld(t, async (world) => {
    const plan = await world.plan({ kind: "end", how: "poweroff", afterMs: 0 });
    const backend = world.createBackend({ tscKhz: "unknown" });
    const vm = await backend.launch(plan, call());
    await vm.boot(call());
    assert.match(vm.record.machine, /^pc-q35-/);
    assert.equal((await vm.exited).reason, "guest_shutdown");
  });
});

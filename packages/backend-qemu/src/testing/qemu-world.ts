/** The conformance suite's world with the real QEMU, the real host helper and the bare-metal test guest. */
import { chmod, chown, mkdir, mkdtemp, open, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { newId, systemRandom } from "@fluxvm/core";
import { openVmCgroups, readBootId, startHostHelper, systemClock, type HostHelper, type VmCgroups } from "@fluxvm/host";
import { findNativeBinary } from "@fluxvm/host/testing";
import { createNullLogger, type Logger } from "@fluxvm/telemetry";
import type { LaunchPlan } from "@fluxvm/vmm";
import type { BrokenPlan, ConformanceWorld, GuestScenario } from "@fluxvm/vmm/testing";
import { createQemuBackend, type QemuBackend } from "../backend.ts";
import type { QemuConfigInput } from "../config.ts";

export interface QemuWorldOptions {
  readonly accelerator: "tcg" | "kvm";
  readonly config?: QemuConfigInput | undefined;
  readonly logger?: Logger | undefined;
  /** Another world's instance and folder, whose process has died. */
  readonly takeOver?: { readonly instanceId: string; readonly folder: string } | undefined;
}

const GUEST_MEMORY_MIB = 64;
/** User ids no other test and no person has. */
const FIRST_UID = 640_000;
const UID_COUNT = 50_000;

export async function createQemuWorld(options: QemuWorldOptions): Promise<QemuWorld> {
  const logger = options.logger ?? createNullLogger();
  const { instanceId, folder } = options.takeOver ?? {
    instanceId: newId("inst", systemRandom),
    folder: await mkdtemp("/tmp/fluxvm-qemu-"),
  };
  await chmod(folder, 0o711); // VMs pass through to their own directory
  const helper = await startHostHelper({ binaryPath: findNativeBinary("fluxvm-host-helper"), logger, clock: systemClock });
  const cgroups = await openVmCgroups({ instanceId, helper });
  return new QemuWorld({ ...options, logger, instanceId, folder, helper, cgroups });
}

interface WorldParts extends QemuWorldOptions {
  readonly logger: Logger;
  readonly instanceId: string;
  readonly folder: string;
  readonly helper: HostHelper;
  readonly cgroups: VmCgroups;
}

export class QemuWorld implements ConformanceWorld {
  readonly instanceId: string;
  readonly folder: string;
  readonly helper: HostHelper;
  readonly #parts: WorldParts;
  readonly #instances = new Set<string>();
  #backend: QemuBackend;
  #uid = FIRST_UID + Math.floor(Math.random() * UID_COUNT);

  constructor(parts: WorldParts) {
    this.#parts = parts;
    this.instanceId = parts.instanceId;
    this.folder = parts.folder;
    this.#instances.add(parts.instanceId);
    this.helper = parts.helper;
    this.#backend = this.createBackend();
  }

  get backend(): QemuBackend {
    return this.#backend;
  }

  createBackend(config: QemuConfigInput = {}): QemuBackend {
    const { helper, cgroups, logger, accelerator } = this.#parts;
    return createQemuBackend({
      config: { ...this.#parts.config, ...config },
      launcher: helper,
      cgroups,
      kvmUsable: async () => (accelerator === "kvm" ? { usable: true } : { usable: false, reason: "this test runs without KVM" }),
      bootId: readBootId(),
      clock: systemClock,
      logger,
    });
  }

  async plan(scenario: GuestScenario, changes: Partial<LaunchPlan> = {}): Promise<LaunchPlan> {
    const vmId = newId("vm", systemRandom);
    const uid = this.#uid++;
    const workspace = join(this.folder, vmId);
    await mkdir(workspace);
    await chown(workspace, 0, uid); // as the daemon makes it: its own, sticky, and writable for the VM's group
    await chmod(workspace, 0o1770);
    const plan: LaunchPlan = {
      vmId,
      instanceId: this.instanceId,
      name: vmId,
      workspace,
      uid,
      gid: uid,
      accel: this.#parts.accelerator,
      vcpus: 1,
      memoryMib: GUEST_MEMORY_MIB,
      boot: { kind: "kernel", kernelPath: findNativeBinary("fluxvm-test-guest"), cmdline: formatScript(scenario) },
      disks: [],
      network: { mode: "none" },
      agent: true,
      limits: { pidsMax: 128 },
      ...changes,
      console: { logPath: join(workspace, "console.log"), maxBytes: changes.console?.maxBytes ?? 65_536 },
    };
    this.#instances.add(plan.instanceId);
    return plan;
  }

  async brokenPlans(): Promise<readonly BrokenPlan[]> {
    const bad = async (
      what: string,
      code: string,
      change: (plan: LaunchPlan) => LaunchPlan | Promise<LaunchPlan>,
    ): Promise<BrokenPlan> => ({
      what,
      code,
      plan: await change(await this.plan({ kind: "idle" })),
    });
    const busy = createServer();
    await new Promise<void>((resolve) => busy.listen(0, "127.0.0.1", resolve));
    busy.unref();
    const address = busy.address();
    const hostPort = typeof address === "object" && address !== null ? address.port : 0;
    const mac = "52:54:00:00:00:01";
    const forward = { protocol: "tcp" as const, hostAddress: "127.0.0.1", hostPort, guestPort: 80 };
    return [
      await bad("a kernel that is not there", "VM_LAUNCH_FAILED", (p) => ({
        ...p,
        boot: { kind: "kernel", kernelPath: `${p.workspace}/none`, cmdline: "" },
      })),
      await bad("a kernel that is none", "VM_LAUNCH_FAILED", async (p) => {
        const kernelPath = join(p.workspace, "junk");
        await writeFile(kernelPath, "not a kernel\n".repeat(1000));
        return { ...p, boot: { kind: "kernel", kernelPath, cmdline: "" } };
      }),
      await bad("a disk that is not there", "VM_LAUNCH_FAILED", (p) => ({ ...p, disks: [diskAt(`${p.workspace}/none.qcow2`)] })),
      await bad("a disk that is not of its format", "VM_LAUNCH_FAILED", async (p) => {
        const path = join(p.workspace, "root.qcow2");
        await writeFile(path, "junk".repeat(1000));
        await chown(path, p.uid, p.gid);
        return { ...p, disks: [diskAt(path)] };
      }),
      await bad("a port in use", "PORT_IN_USE", (p) => ({ ...p, network: { mode: "user", mac, forwards: [forward] } })),
      await bad("no processor", "REQUEST_INVALID", (p) => ({ ...p, vcpus: 0 })),
      await bad("more memory than the host has addresses for", "VM_LAUNCH_FAILED", (p) => ({ ...p, memoryMib: 4_194_304 })),
      await bad("a workspace that is not there", "VM_LAUNCH_FAILED", (p) => ({ ...p, workspace: `${p.workspace}/none` })),
      await bad("an accelerator this host lacks", "HOST_CAPABILITY_MISSING", (p) => ({ ...p, accel: "kvm" })),
    ].filter((plan) => this.#parts.accelerator === "tcg" || plan.code !== "HOST_CAPABILITY_MISSING");
  }

  async readConsole(plan: LaunchPlan): Promise<string> {
    return await readFile(plan.console.logPath, "utf8").catch(() => "");
  }

  async consoleBytes(plan: LaunchPlan): Promise<number> {
    const folder = join(plan.console.logPath, "..");
    const names = (await readdir(folder)).filter((name) => name.startsWith("console.log"));
    const sizes = await Promise.all(names.map(async (name) => (await stat(join(folder, name))).size));
    return sizes.reduce((sum, size) => sum + size, 0);
  }

  isAlive(pid: number): boolean {
    try {
      process.kill(pid, 0);
      return true;
    } catch {
      return false;
    }
  }

  killFromOutside(pid: number): void {
    process.kill(pid, "SIGKILL");
  }

  async leftovers(plan: LaunchPlan): Promise<readonly string[]> {
    const found: string[] = [];
    for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
      const cmdline = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
      if (cmdline.includes(plan.vmId)) found.push(`process ${pid}`);
    }
    const { signal } = new AbortController();
    if ((await this.#parts.cgroups.listVmCgroups({ signal })).includes(plan.vmId)) found.push("cgroup");
    const files = await readdir(plan.workspace).catch(() => []);
    found.push(...files.filter((name) => name.endsWith(".sock")).map((name) => `socket ${name}`));
    const mounts = await readFile("/proc/self/mountinfo", "utf8");
    if (mounts.includes(plan.vmId)) found.push("mount");
    return found;
  }

  async disconnect(): Promise<void> {
    this.#backend.detach();
  }

  async reopen(): Promise<QemuBackend> {
    await this.disconnect();
    this.#backend = this.createBackend();
    return this.#backend;
  }

  async close(): Promise<void> {
    const options = { signal: AbortSignal.timeout(20_000) };
    const backend = await this.reopen();
    for (const instanceId of this.#instances) {
      for (const found of await backend.list(instanceId, options)) await backend.destroyFound(found, options);
    }
    for (const vmId of await this.#parts.cgroups.listVmCgroups(options)) await this.#parts.cgroups.removeVmCgroup(vmId, options);
    await this.#parts.cgroups.removeInstance(options);
    await this.helper.close();
    await rm(this.folder, { recursive: true, force: true });
  }
}

function diskAt(path: string): LaunchPlan["disks"][number] {
  return { serial: "fluxvm-root", path, format: "qcow2", readonly: false, backing: [], bootable: false };
}

/** The test guest's words for a scenario; see native/test-guest/README.md. */
export function formatScript(scenario: GuestScenario): string {
  switch (scenario.kind) {
    case "idle":
      return "print=ready idle";
    case "stubborn":
      return "power=ignore print=ready idle";
    case "busy":
      return "print=ready busy";
    case "count":
      return `count=${scenario.everyMs}`;
    case "flood":
      return `flood=${scenario.kib} print=done idle`;
    case "end": {
      const how = { poweroff: "exit=poweroff", reset: "exit=reset", crash: "crash", panic: "panic" }[scenario.how];
      return `sleep=${scenario.afterMs} print=bye ${how}`;
    }
  }
}

/** An empty file of that size, owned by the plan's user, for a raw disk. */
export async function createRawDisk(plan: LaunchPlan, name: string, bytes: number): Promise<string> {
  const path = join(plan.workspace, name);
  const file = await open(path, "w", 0o600);
  await file.truncate(bytes);
  await file.close();
  await chown(path, plan.uid, plan.gid);
  return path;
}

/** A daemon of the product with kernel and image ready, and the same files for peers to start by themselves. */
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { closeSync, mkdirSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { randomHex, systemRandom } from "@fluxvm/core";
import {
  createGuestClient,
  encodeGuestConfigDisk,
  GUEST_AGENT_PORT_NAME,
  GUEST_ROOT_DISK_SERIAL,
  type GuestAgent,
} from "@fluxvm/guest-protocol";
import { systemClock } from "@fluxvm/host";
import { TestDaemon, importImage, importKernel } from "../test/fixtures/daemon.ts";
import { ensureBusyboxLayout } from "../test/fixtures/artefacts.ts";

export interface Lab {
  readonly daemon: TestDaemon;
  readonly scratch: string;
  /** QEMU's arguments of a VM the daemon made, for peers to repeat. */
  readonly sample: SampleVm;
  close(): Promise<void>;
}

export interface SampleVm {
  readonly argv: readonly string[];
  readonly kernel: string;
  readonly initrd: string;
  readonly cmdline: string;
  readonly base: string;
}

export const VM_REQUEST = { image: "busybox", memory_mib: 256, vcpus: 1, network: { mode: "user" }, workload: { enabled: false } } as const;

export async function openLab(): Promise<Lab> {
  const daemon = new TestDaemon({});
  const scratch = mkdtempSync("/tmp/fluxvm-bench-");
  const close = async (): Promise<void> => {
    rmSync(scratch, { recursive: true, force: true });
    const left = await daemon.destroy();
    if (left.length > 0) process.stderr.write(`left behind: ${left.join(", ")}\n`);
  };
  try {
    await daemon.start();
    await importKernel(daemon);
    await importImage(daemon, ensureBusyboxLayout(), "busybox");
    return { daemon, scratch, sample: await takeSample(daemon), close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function takeSample(daemon: TestDaemon): Promise<SampleVm> {
  const vm = await daemon.client.vms.create({ name: "sample", ...VM_REQUEST }, { ready: "exec" });
  const argv = readFileSync(`/proc/${vm.pid}/cmdline`, "utf8").split("\0").slice(0, -1);
  await daemon.client.vms.delete("sample");
  const after = (flag: string): string => argv[argv.indexOf(flag) + 1] ?? "";
  const base = argv.map((a) => /"filename":"([^"]+)"/.exec(a)?.[1]).find((path) => path?.includes("/images/") === true);
  if (base === undefined) throw new Error("the sample VM has no base image");
  return { argv, kernel: after("-kernel"), initrd: after("-initrd"), cmdline: after("-append"), base };
}

/** What a peer's VM needs beside kernel and initrd, made before its time is taken. */
export interface PeerVm {
  readonly directory: string;
  readonly root: string;
  readonly config: string;
  readonly socket: string;
  readonly token: string;
}

export function preparePeerVm(lab: Lab, name: string): PeerVm {
  const directory = join(lab.scratch, name);
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory);
  const root = join(directory, "root.qcow2");
  const size = String(2 * 1024 ** 3);
  execFileSync("qemu-img", ["create", "-q", "-f", "qcow2", "-b", lab.sample.base, "-F", "raw", root, size]);
  const token = randomHex(systemRandom, 32);
  const config = join(directory, "config.img");
  const disk = encodeGuestConfigDisk({
    version: 1,
    vmId: name,
    token,
    hostname: name,
    agent: { transport: "virtio-serial", portName: GUEST_AGENT_PORT_NAME },
    root: { serial: GUEST_ROOT_DISK_SERIAL, fstype: "ext4", readonly: false, grow: true },
    init: "auto",
    network: { interfaces: [{ address: "10.0.2.15/24", gateway: "10.0.2.2" }], nameservers: ["10.0.2.3"], search: [] },
    wallClockMs: Date.now(),
    entropy: randomHex(systemRandom, 32),
  });
  writeFileSync(config, disk);
  return { directory, root, config, socket: join(directory, "agent.sock"), token };
}

/** The daemon's own arguments with its safety and control left out: what one would type by hand. */
export function computeBareArguments(sample: SampleVm, vm: PeerVm): string[] {
  const drop = new Set(["-name", "-sandbox", "-action", "-add-fd", "-chardev", "-mon", "-serial", "-blockdev", "-device", "-netdev"]);
  const args: string[] = [];
  for (let i = 1; i < sample.argv.length; i += 1) {
    const flag = sample.argv[i] ?? "";
    if (flag === "-S") continue;
    if (drop.has(flag)) i += 1;
    else args.push(flag);
  }
  return [
    ...args,
    ...["-serial", `file:${join(vm.directory, "console.log")}`],
    ...["-device", "virtio-rng-pci"],
    ...["-drive", `file=${vm.root},format=qcow2,if=none,id=root`, "-device", "virtio-blk-pci,drive=root,serial=fluxvm-root"],
    ...[
      "-drive",
      `file=${vm.config},format=raw,if=none,id=config,readonly=on`,
      "-device",
      "virtio-blk-pci,drive=config,serial=fluxvm-config",
    ],
    ...["-netdev", "user,id=net0", "-device", "virtio-net-pci,netdev=net0,romfile="],
    ...["-device", "virtio-serial-pci,max_ports=2", "-chardev", `socket,id=agent,path=${vm.socket},server=on,wait=off`],
    ...["-device", `virtserialport,chardev=agent,name=${GUEST_AGENT_PORT_NAME}`],
  ];
}

export function startBareQemu(lab: Lab, vm: PeerVm): ChildProcess {
  const log = openSync(join(vm.directory, "qemu.log"), "a");
  const child = spawn(lab.sample.argv[0] ?? "qemu-system-x86_64", computeBareArguments(lab.sample, vm), { stdio: ["ignore", log, log] });
  closeSync(log);
  return child;
}

/** Waits for the agent over the peer's socket, as the daemon does over its own. */
export async function connectAgent(vm: PeerVm): Promise<GuestAgent> {
  const deadline = Date.now() + 10_000;
  while (!readdirSync(vm.directory).includes("agent.sock")) {
    if (Date.now() > deadline) throw new Error(`no agent socket: ${readFileSync(join(vm.directory, "qemu.log"), "utf8")}`);
    await delay(2);
  }
  const guest = createGuestClient({
    endpoint: { kind: "unix", path: vm.socket },
    token: vm.token,
    clock: systemClock,
    random: systemRandom,
  });
  await guest.waitReady({ signal: AbortSignal.timeout(120_000) });
  await guest.ping({ signal: AbortSignal.timeout(10_000) });
  return guest;
}

export async function endProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise<void>((resolve) => {
    child.once("exit", () => resolve());
  });
  child.kill("SIGKILL");
  await ended;
}

/**
 * Working in a guest: the round trip of `true` over a kept connection beside what spawning costs the guest itself, and
 * files in and out beside virtio-fs and the same bytes through a bare virtio-serial port.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { createReadStream, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { MIB } from "@fluxvm/core";
import type { ExecAttachment, GuestAgent } from "@fluxvm/guest-protocol";
import { compare, describeHost, print, summarise, type Contender } from "./harness.ts";
import { computeBareArguments, connectAgent, endProcess, openLab, preparePeerVm, VM_REQUEST, type Lab, type PeerVm } from "./lab.ts";

const FILE_MIB = 32;
const VIRTIOFSD = ["/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"];

export async function runExecBench(options: { readonly n: number }): Promise<void> {
  const lab = await openLab();
  let peer: PeerGuest | undefined;
  try {
    await lab.daemon.client.vms.create({ name: "worker", ...VM_REQUEST, memory_mib: 512 }, { ready: "exec" });
    await measureRoundTrip(lab, Math.max(50, options.n * 10));
    peer = await startPeerGuest(lab);
    const content = randomBytes(FILE_MIB * MIB);
    const peers = (direction: "push" | "pull"): Contender[] => peerContenders(peer, direction, content);
    await compare({
      bench: "exec",
      case: "file-push",
      n: options.n,
      unit: "MiB/s",
      ours: pushOverHttp(lab, content),
      peers: peers("push"),
    });
    await compare({ bench: "exec", case: "file-pull", n: options.n, unit: "MiB/s", ours: pullOverHttp(lab), peers: peers("pull") });
  } finally {
    await peer?.close();
    await lab.close();
  }
}

/** The round trip, the guest's own cost of a spawn (a loop inside it), and a bare question to the agent, in one run. */
async function measureRoundTrip(lab: Lab, n: number): Promise<void> {
  const { client } = lab.daemon;
  const exec: number[] = [];
  const ping: number[] = [];
  const spawned: number[] = [];
  const loop =
    "a=$(cut -d' ' -f1 /proc/uptime); i=0; while [ $i -lt 20 ]; do /bin/true; i=$((i+1)); done; b=$(cut -d' ' -f1 /proc/uptime); echo $a $b";
  for (let round = 0; round < n; round += 1) {
    let start = performance.now();
    await client.agent.run("worker", { command: ["/bin/true"] });
    exec.push(performance.now() - start);
    start = performance.now();
    await client.agent.ping("worker");
    ping.push(performance.now() - start);
    if (round % 10 === 0) {
      const [from, to] = (await client.agent.run("worker", { command: loop })).stdout.trim().split(" ").map(Number);
      spawned.push((((to ?? 0) - (from ?? 0)) * 1000) / 20);
    }
  }
  const shared = { bench: "exec", peer: null, unit: "ms", theirs: null, speedup: null, host: describeHost() } as const;
  print({ ...shared, case: "true-round-trip", n: exec.length, ours: summarise(exec) });
  print({ ...shared, case: "agent-ping", n: ping.length, ours: summarise(ping) });
  print({ ...shared, case: "guest-own-spawn-of-true", n: spawned.length, ours: summarise(spawned) });
}

function rate(bytes: number, startedAt: number): number {
  return bytes / MIB / ((performance.now() - startedAt) / 1000);
}

function pushOverHttp(lab: Lab, content: Uint8Array): Contender {
  return {
    name: "fluxvm",
    async run() {
      const start = performance.now();
      await lab.daemon.client.files.write("worker", "/root/file.bin", content);
      return rate(content.length, start);
    },
  };
}

function pullOverHttp(lab: Lab): Contender {
  return {
    name: "fluxvm",
    async run() {
      const start = performance.now();
      const file = await lab.daemon.client.files.read("worker", "/root/file.bin");
      let bytes = 0;
      for await (const chunk of file.content) bytes += (chunk as Buffer).length;
      return rate(bytes, start);
    },
  };
}

/** A guest of a hand-started QEMU with a raw serial port and, where virtiofsd is there, a shared folder. */
interface PeerGuest {
  readonly guest: GuestAgent;
  readonly raw: string;
  readonly shared: string | undefined;
  close(): Promise<void>;
}

async function startPeerGuest(lab: Lab): Promise<PeerGuest> {
  const vm = preparePeerVm(lab, "peer");
  const raw = join(vm.directory, "raw.sock");
  const shared = join(vm.directory, "shared");
  mkdirSync(shared);
  const virtiofsd = await startVirtiofsd(vm, shared);
  const args = [
    ...computeBareArguments(lab.sample, vm).map((a, i, all) => (all[i - 1] === "-m" ? "512M" : a)),
    ...[
      "-chardev",
      `socket,id=raw,path=${raw},server=on,wait=off`,
      "-device",
      "virtio-serial-pci,id=second",
      "-device",
      "virtserialport,bus=second.0,chardev=raw,name=bench.raw",
    ],
    ...(virtiofsd === undefined
      ? []
      : [
          ...["-object", "memory-backend-memfd,id=mem,size=512M,share=on", "-machine", "memory-backend=mem"],
          ...["-chardev", `socket,id=fs,path=${join(vm.directory, "fs.sock")}`, "-device", "vhost-user-fs-pci,chardev=fs,tag=shared"],
        ]),
  ];
  const qemu = spawn(lab.sample.argv[0] ?? "", args, { stdio: ["ignore", "ignore", "inherit"] });
  const guest = await connectAgent(vm);
  const hasFs = virtiofsd !== undefined && (await mountShared(guest));
  if (!hasFs) process.stderr.write("no virtio-fs here: compared with bare virtio-serial alone\n");
  return {
    guest,
    raw,
    shared: hasFs ? shared : undefined,
    close: async () => {
      guest.destroy();
      await endProcess(qemu);
      if (virtiofsd !== undefined) await endProcess(virtiofsd);
    },
  };
}

async function startVirtiofsd(vm: PeerVm, shared: string): Promise<ChildProcess | undefined> {
  const binary = VIRTIOFSD.find((path) => existsSync(path));
  if (binary === undefined) return undefined;
  const socket = join(vm.directory, "fs.sock");
  const child = spawn(binary, [`--socket-path=${socket}`, "-o", `source=${shared}`, "-o", "cache=auto"], { stdio: "ignore" });
  for (let attempt = 0; attempt < 100 && !existsSync(socket); attempt += 1) await delay(50);
  return existsSync(socket) ? child : undefined;
}

async function mountShared(guest: GuestAgent): Promise<boolean> {
  // The agent loads fuse and virtiofs aside, after it serves.
  const line =
    "mkdir -p /mnt/shared; for i in $(seq 100); do mount -t virtiofs shared /mnt/shared 2>/dev/null && exit 0; sleep 0.1; done; exit 1";
  return (await runInGuest(guest, line)) === 0;
}

/** Runs a line to its end and returns its exit code. */
async function runInGuest(guest: GuestAgent, line: string): Promise<number | undefined> {
  const attachment = await startInGuest(guest, line);
  for await (const item of attachment.output) if ("exit" in item) return item.exit.code;
  return undefined;
}

let execs = 0;

async function startInGuest(guest: GuestAgent, line: string): Promise<ExecAttachment> {
  const signal = AbortSignal.timeout(120_000);
  const execId = `exec-bench${(execs += 1)}`;
  await guest.exec.start({ execId, argv: ["/bin/sh", "-c", line], stdin: false }, { signal });
  return await guest.exec.attach(execId, { stdout: 0, stderr: 0 }, { signal });
}

function peerContenders(peer: PeerGuest | undefined, direction: "push" | "pull", content: Uint8Array): Contender[] {
  if (peer === undefined) return [];
  const { shared } = peer;
  const serial: Contender = {
    name: "bare-virtio-serial",
    run: async () => await (direction === "push" ? pushRaw(peer, content) : pullRaw(peer, content.length)),
  };
  return shared === undefined
    ? [serial]
    : [serial, { name: "virtio-fs", run: async () => await copyShared(peer.guest, shared, direction, content) }];
}

const PORT = "$(dirname $(grep -l bench.raw /sys/class/virtio-ports/*/name) | xargs basename)";

async function pushRaw(peer: PeerGuest, content: Uint8Array): Promise<number> {
  const attachment = await startInGuest(peer.guest, `head -c ${content.length} /dev/${PORT} > /root/file.bin; sync`);
  const start = performance.now();
  const socket = await openRaw(peer.raw);
  socket.end(content);
  for await (const item of attachment.output) if ("exit" in item) break;
  socket.destroy();
  return rate(content.length, start);
}

async function pullRaw(peer: PeerGuest, length: number): Promise<number> {
  const socket = await openRaw(peer.raw);
  const start = performance.now();
  const attachment = await startInGuest(peer.guest, `cat /root/file.bin > /dev/${PORT}`);
  let bytes = 0;
  for await (const chunk of socket) {
    bytes += (chunk as Buffer).length;
    if (bytes >= length) break;
  }
  const value = rate(bytes, start);
  for await (const item of attachment.output) if ("exit" in item) break;
  return value;
}

async function openRaw(path: string): Promise<Socket> {
  const socket = connect(path);
  await new Promise<void>((resolve, reject) => {
    socket.once("connect", resolve).once("error", reject);
  });
  return socket;
}

/** The same copy through the shared folder: the guest reads or writes it with cp and sync. */
async function copyShared(guest: GuestAgent, shared: string, direction: "push" | "pull", content: Uint8Array): Promise<number> {
  const name = `${direction}-${(copies += 1)}.bin`; // a new one each time: the guest caches names
  const path = join(shared, name);
  const start = performance.now();
  if (direction === "push") {
    writeFileSync(path, content);
    await requireSuccess(guest, `cp /mnt/shared/${name} /root/file.bin; sync`);
    return rate(content.length, start);
  }
  await requireSuccess(guest, `cp /root/file.bin /mnt/shared/${name} && sync`);
  let bytes = 0;
  for await (const chunk of createReadStream(path)) bytes += (chunk as Buffer).length;
  if (bytes !== content.length) throw new Error("virtio-fs lost bytes");
  return rate(bytes, start);
}

let copies = 0;

async function requireSuccess(guest: GuestAgent, line: string): Promise<void> {
  const code = await runInGuest(guest, line);
  if (code !== 0) throw new Error(`"${line}" ended with ${code}`);
}

/**
 * From a `LaunchPlan` to QEMU's command line and the files its process may see. Pure.
 *
 * Machine: `microvm` for a direct kernel boot, `q35` where firmware starts a disk. Nothing is there that is not asked
 * for (`-nodefaults`), vCPUs stay stopped until `cont` (`-S`), and a guest that shuts down, resets or panics leaves the
 * process waiting, so that the reason can be read also by a later daemon (`-action`, `-no-reboot`).
 * Sockets are named relative to the working directory, which is the workspace.
 */
import { dirname } from "node:path";
import { invalidField, PlatformError } from "@fluxvm/core";
import type { ProcessSpec } from "@fluxvm/host";
import type { BootPlan, DiskPlan, LaunchPlan, NetworkPlan } from "@fluxvm/vmm";
import type { QemuConfig } from "./config.ts";
import { formatMarker, isMarkerId } from "./marker.ts";

export const QMP_SOCKET = "qmp.sock";
export const AGENT_SOCKET = "agent.sock";
/** Name of the virtio-serial port the guest agent opens. */
export const AGENT_PORT = "fluxvm.agent";
/** Descriptor the console's log pipe has in QEMU. */
const CONSOLE_FD = 3;
const DIAGNOSTICS_MAX_BYTES = 65_536;
/** Longest path of a Unix socket, without the final zero (unix(7)). */
const MAX_SOCKET_PATH_BYTES = 107;
/** virtio-blk's serial number (virtio 1.2, section 5.2.6). */
const MAX_SERIAL_BYTES = 20;
/** Slots on the root bus minus what the machine itself and the other devices take. */
export const MAX_DISKS = 20;
export const MAX_VCPUS = 254;
/** Bound on translated code under emulation; QEMU's default is 1 GiB. */
const TCG_CODE_MIB = 256;

/** What was found out about this host. */
export interface QemuHost {
  /** Absolute path of the program, links resolved. */
  readonly binary: string;
  readonly version: QemuVersion;
  readonly accelerator: "kvm" | "tcg";
  /** Frequency of the time-stamp counter an emulated guest sees, where it is known. */
  readonly tscKhz?: number | undefined;
}

export interface QemuVersion {
  readonly major: number;
  readonly minor: number;
}

export interface QemuPlan {
  readonly machine: string;
  readonly accelerator: "kvm" | "tcg";
  readonly process: ProcessSpec;
  readonly qmpPath: string;
  readonly agentPath: string | undefined;
  /** Where QEMU's own messages go. */
  readonly diagnosticsPath: string;
}

/** @throws PlatformError `REQUEST_INVALID` naming the field, `STATE_DIR_UNUSABLE` for a workspace whose path is too long for sockets. */
export function planQemu(plan: LaunchPlan, host: QemuHost, config: QemuConfig): QemuPlan {
  requireValid(plan);
  const machine = chooseMachine(plan.boot, host);
  const diagnosticsPath = `${dirname(plan.console.logPath)}/qemu.log`;
  return {
    machine,
    accelerator: host.accelerator,
    qmpPath: `${plan.workspace}/${QMP_SOCKET}`,
    agentPath: plan.agent ? `${plan.workspace}/${AGENT_SOCKET}` : undefined,
    diagnosticsPath,
    process: {
      argv: [host.binary, ...computeArguments(plan, { host, machine, config })],
      env: {},
      cwd: plan.workspace,
      credentials: { uid: plan.uid, gid: plan.gid },
      namespaces: { ipc: true, uts: true, ...(plan.network.mode === "none" ? { net: "new" } : {}) },
      root: {
        mounts: computeMounts(plan, host, config),
        devices: host.accelerator === "kvm" ? [{ path: "/dev/kvm" }] : [],
      },
      rlimits: { core: 0, nofile: 4096 },
      stdout: { kind: "rotated", path: diagnosticsPath, maxBytes: DIAGNOSTICS_MAX_BYTES, keep: 1 },
      stderr: { kind: "stdout" },
      fds: [{ kind: "rotated", fd: CONSOLE_FD, path: plan.console.logPath, maxBytes: plan.console.maxBytes, keep: 1 }],
    },
  };
}

function requireValid(plan: LaunchPlan): void {
  if (!isMarkerId(plan.vmId)) throw invalidField("vmId", "not an id");
  if (!isMarkerId(plan.instanceId)) throw invalidField("instanceId", "not an id");
  requireCount("vcpus", plan.vcpus, MAX_VCPUS);
  requireCount("memoryMib", plan.memoryMib, 4_194_304);
  if (plan.disks.length > MAX_DISKS) throw invalidField("disks", `at most ${MAX_DISKS}`);
  requirePath("workspace", plan.workspace);
  requirePath("console.logPath", plan.console.logPath);
  requireSocketPath(plan);
  requireBoot(plan.boot);
  const serials = new Set<string>();
  for (const [index, disk] of plan.disks.entries()) {
    requireDisk(`disks.${index}`, disk);
    if (serials.has(disk.serial)) throw invalidField(`disks.${index}.serial`, "used twice");
    serials.add(disk.serial);
  }
  requireNetwork(plan.network);
}

function requireCount(field: string, value: number, max: number): void {
  if (!Number.isSafeInteger(value) || value < 1 || value > max) throw invalidField(field, `must be between 1 and ${max}`);
}

function requirePath(field: string, path: string): void {
  if (!path.startsWith("/") || path.includes("\0") || path.includes("\n")) throw invalidField(field, "must be an absolute path");
}

function requireSocketPath(plan: LaunchPlan): void {
  const longest = Math.max(QMP_SOCKET.length, plan.agent ? AGENT_SOCKET.length : 0);
  const room = MAX_SOCKET_PATH_BYTES - longest - 1;
  if (Buffer.byteLength(plan.workspace) <= room) return;
  throw new PlatformError(
    "STATE_DIR_UNUSABLE",
    `Cannot launch ${plan.vmId}: the VM's directory has a path longer than ${room} bytes, too long for sockets`,
    {
      details: { workspace: plan.workspace },
    },
  );
}

function requireBoot(boot: BootPlan): void {
  switch (boot.kind) {
    case "kernel":
      requirePath("boot.kernelPath", boot.kernelPath);
      if (boot.initrdPath !== undefined) requirePath("boot.initrdPath", boot.initrdPath);
      if (/[\0\n]/.test(boot.cmdline)) throw invalidField("boot.cmdline", "must be one line");
      return;
    case "firmware":
      if (boot.firmware === "uefi" && boot.varsPath === undefined)
        throw invalidField("boot.varsPath", "uefi needs a file for its variables");
      if (boot.varsPath !== undefined) requirePath("boot.varsPath", boot.varsPath);
      return;
  }
}

function requireDisk(field: string, disk: DiskPlan): void {
  if (!/^[A-Za-z0-9._-]+$/.test(disk.serial) || disk.serial.length > MAX_SERIAL_BYTES) {
    throw invalidField(`${field}.serial`, `must be 1 to ${MAX_SERIAL_BYTES} letters, digits, dots or dashes`);
  }
  requirePath(`${field}.path`, disk.path);
  for (const [index, file] of disk.backing.entries()) requirePath(`${field}.backing.${index}.path`, file.path);
  if (disk.format === "raw" && disk.backing.length > 0) throw invalidField(`${field}.backing`, "a raw disk has none");
}

function requireNetwork(network: NetworkPlan): void {
  if (network.mode === "none") return;
  if (!/^([0-9a-f]{2}:){5}[0-9a-f]{2}$/i.test(network.mac)) throw invalidField("network.mac", "not a MAC address");
  for (const [index, forward] of network.forwards.entries()) {
    const field = `network.forwards.${index}`;
    if (!/^\d{1,3}(\.\d{1,3}){3}$/.test(forward.hostAddress)) throw invalidField(`${field}.hostAddress`, "not an IPv4 address");
    requireCount(`${field}.hostPort`, forward.hostPort, 65_535);
    requireCount(`${field}.guestPort`, forward.guestPort, 65_535);
  }
}

/**
 * q35 where firmware starts a disk, and for an emulated guest that cannot be told its counter's frequency: microvm has
 * nothing reliable to measure it with (`host-facts.ts`). Versioned, so that a VM's devices stay the same when QEMU is
 * upgraded under it; microvm has no versions.
 */
function chooseMachine(boot: BootPlan, { version, accelerator, tscKhz }: QemuHost): string {
  if (boot.kind === "kernel" && (accelerator === "kvm" || tscKhz !== undefined)) return "microvm";
  const pinned = version.major > 7 || (version.major === 7 && version.minor >= 2);
  return pinned ? "pc-q35-7.2" : `pc-q35-${version.major}.${version.minor}`;
}

interface Context {
  readonly host: QemuHost;
  readonly machine: string;
  readonly config: QemuConfig;
}

function computeArguments(plan: LaunchPlan, context: Context): string[] {
  return [
    ...["-name", formatMarker(plan)],
    ...["-nodefaults", "-no-user-config", "-display", "none", "-S", "-no-reboot"],
    ...["-action", "reboot=shutdown,shutdown=pause,panic=pause,watchdog=pause"],
    ...["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"],
    ...machineArguments(plan, context),
    ...["-m", `${plan.memoryMib}M`, "-smp", `${plan.vcpus}`],
    ...["-chardev", `socket,id=qmp,path=${QMP_SOCKET},server=on,wait=off`, "-mon", "chardev=qmp,mode=control"],
    ...["-add-fd", `fd=${CONSOLE_FD},set=1`, "-chardev", "file,id=console,path=/dev/fdset/1,append=on", "-serial", "chardev:console"],
    ...["-device", "pvpanic", "-device", "virtio-rng-pci"],
    ...plan.disks.flatMap(diskArguments),
    ...networkArguments(plan.network),
    ...(plan.agent ? agentArguments() : []),
    ...bootArguments(plan.boot, context.host),
  ];
}

function machineArguments(plan: LaunchPlan, { host, machine, config }: Context): string[] {
  const options = machine === "microvm" ? "acpi=on,pcie=on,rtc=on,pit=on,pic=on" : "vmport=off,usb=off";
  const flash = plan.boot.kind === "firmware" && plan.boot.firmware === "uefi" ? ",pflash0=firmware-code,pflash1=firmware-vars" : "";
  return [
    ...["-machine", `${machine},${options}${flash}`],
    ...(flash === "" ? [] : firmwareArguments(config.ovmfCode, plan.boot)),
    ...(host.accelerator === "kvm"
      ? ["-accel", "kvm", "-cpu", config.kvmCpu]
      : ["-accel", `tcg,thread=multi,tb-size=${TCG_CODE_MIB}`, "-cpu", "max"]),
  ];
}

function firmwareArguments(codePath: string, boot: BootPlan): string[] {
  const varsPath = boot.kind === "firmware" ? (boot.varsPath ?? "") : "";
  return [
    ...blockdev({ driver: "file", "node-name": "firmware-code", filename: codePath, "read-only": true }),
    ...blockdev({ driver: "file", "node-name": "firmware-vars", filename: varsPath, "read-only": false }),
  ];
}

/** One node per file, from the bottom of the chain up. `backing: null` keeps QEMU from following a path written in the file. */
function diskArguments(disk: DiskPlan, index: number): string[] {
  const chain = [...disk.backing].reverse().map((file) => ({ ...file, readonly: true }));
  const files = [...chain, { path: disk.path, format: disk.format, readonly: disk.readonly }];
  const nodes = files.flatMap((file, level) => {
    const name = level === files.length - 1 ? `disk${index}` : `disk${index}-base${level}`;
    const backing = file.format === "qcow2" ? { backing: level === 0 ? null : `disk${index}-base${level - 1}` } : {};
    const shared = { "read-only": file.readonly, "auto-read-only": false, discard: "unmap" };
    return [
      ...blockdev({ driver: "file", "node-name": `${name}-file`, filename: file.path, ...shared }),
      ...blockdev({ driver: file.format, "node-name": name, file: `${name}-file`, ...shared, ...backing }),
    ];
  });
  const boot = disk.bootable ? `,bootindex=${index + 1}` : "";
  return [...nodes, "-device", `virtio-blk-pci,drive=disk${index},serial=${disk.serial}${boot}`];
}

function blockdev(node: Readonly<Record<string, unknown>>): string[] {
  return ["-blockdev", JSON.stringify(node)];
}

function networkArguments(network: NetworkPlan): string[] {
  if (network.mode === "none") return [];
  const forwards = network.forwards.map((f) => `,hostfwd=${f.protocol}:${f.hostAddress}:${f.hostPort}-:${f.guestPort}`).join("");
  return ["-netdev", `user,id=net0,ipv6=off${forwards}`, "-device", `virtio-net-pci,netdev=net0,mac=${network.mac},romfile=`];
}

function agentArguments(): string[] {
  return [
    ...["-device", "virtio-serial-pci,max_ports=2"],
    ...["-chardev", `socket,id=agent,path=${AGENT_SOCKET},server=on,wait=off`],
    ...["-device", `virtserialport,chardev=agent,name=${AGENT_PORT}`],
  ];
}

/**
 * What helps under emulation was measured (README). `reboot=t panic=-1`: a panic that no device reports (before the
 * guest's pvpanic driver is loaded) ends in a reset; the engine bounds those in a row. `tsc_early_khz`: see `chooseMachine`.
 */
function kernelArguments(host: QemuHost): string {
  const base = "console=ttyS0 reboot=t panic=-1 quiet cryptomgr.notests";
  return host.tscKhz === undefined ? base : `${base} tsc_early_khz=${host.tscKhz}`;
}

function bootArguments(boot: BootPlan, host: QemuHost): string[] {
  if (boot.kind === "firmware") return ["-boot", "strict=on"];
  return [
    ...["-kernel", boot.kernelPath],
    ...(boot.initrdPath === undefined ? [] : ["-initrd", boot.initrdPath]),
    ...["-append", `${kernelArguments(host)} ${boot.cmdline}`.trim()],
  ];
}

type Mounts = NonNullable<ProcessSpec["root"]>["mounts"][number][];

/** The process sees QEMU with its libraries and firmware, its own workspace, and the files its plan names; nothing else. */
function computeMounts(plan: LaunchPlan, host: QemuHost, config: QemuConfig): Mounts {
  const readonly = new Set<string>([host.binary]);
  const writable = new Set<string>();
  if (plan.boot.kind === "kernel") {
    readonly.add(plan.boot.kernelPath);
    if (plan.boot.initrdPath !== undefined) readonly.add(plan.boot.initrdPath);
  } else if (plan.boot.firmware === "uefi") {
    readonly.add(config.ovmfCode);
    writable.add(plan.boot.varsPath ?? "");
  }
  for (const disk of plan.disks) {
    (disk.readonly ? readonly : writable).add(disk.path);
    for (const file of disk.backing) readonly.add(file.path);
  }
  const isInside = (path: string, folder: string): boolean => path.startsWith(`${folder}/`);
  const outside = (paths: Set<string>): string[] =>
    [...paths].filter((path) => !isInside(path, plan.workspace) && !config.systemFolders.some((folder) => isInside(path, folder)));
  return [
    ...config.systemFolders.map((path) => ({ kind: "bind" as const, source: path, target: path, readonly: true, optional: true })),
    ...(plan.network.mode === "user"
      ? [{ kind: "bind" as const, source: "/etc/resolv.conf", target: "/etc/resolv.conf", readonly: true, optional: true }]
      : []),
    ...outside(readonly).map((path) => ({ kind: "bind" as const, source: path, target: path, readonly: true })),
    { kind: "bind" as const, source: plan.workspace, target: plan.workspace },
    ...outside(writable).map((path) => ({ kind: "bind" as const, source: path, target: path })),
  ];
}

/** libvirt as a peer, without systemd: its daemons are started for the bench and ended after it. */
import { execFileSync, spawn, spawnSync, type ChildProcess } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { endProcess, type Lab, type PeerVm } from "./lab.ts";

/**
 * libvirt waits for the end of a QEMU it asked about its abilities, half a minute each, where the first process of the
 * machine does not reap orphans. So it runs under one that does. Without a D-Bus no call to systemd is waited for. A
 * KVM that only emulates costs it 15 s in each `create`, so it does not see that one: its domains are emulated anyway.
 */
const SUPERVISOR =
  "mount --bind /dev/null /dev/kvm; export DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent; virtlogd & libvirtd & while :; do sleep 0.1; done";
const URI = "qemu:///system";

export class Libvirt {
  readonly #daemons: ChildProcess[] = [];

  /** `undefined` where libvirt is not installed; the caller says so. */
  static async open(): Promise<Libvirt | undefined> {
    if (!existsSync("/usr/sbin/libvirtd") || !existsSync("/usr/bin/virsh")) return undefined;
    const libvirt = new Libvirt();
    mkdirSync("/run/libvirt", { recursive: true });
    libvirt.#daemons.push(
      spawn("unshare", ["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", SUPERVISOR], { stdio: "ignore" }),
    );
    for (let attempt = 0; attempt < 100; attempt += 1) {
      try {
        execFileSync("virsh", ["-c", URI, "domcapabilities", "--virttype", "qemu"], { stdio: "ignore" }); // asks QEMU once, not in the measured time
        return libvirt;
      } catch {
        await delay(100);
      }
    }
    await libvirt.close();
    throw new Error("libvirtd does not answer");
  }

  create(lab: Lab, vm: PeerVm, name: string): void {
    const xml = join(vm.directory, "domain.xml");
    for (const path of [vm.root, vm.config]) chmodSync(path, 0o666);
    chmodSync(vm.directory, 0o777);
    chmodSync(lab.scratch, 0o777);
    chmodSync(lab.daemon.directory, 0o755);
    chmodSync(lab.daemon.stateDir, 0o711);
    writeFileSync(xml, describeDomain(lab, vm, name));
    const { status, stderr } = spawnSync("virsh", ["-c", URI, "create", xml], { encoding: "utf8" });
    if (status !== 0) throw new Error(`virsh create: ${stderr}`);
  }

  destroy(name: string): void {
    execFileSync("virsh", ["-c", URI, "destroy", name], { stdio: "ignore" });
  }

  async close(): Promise<void> {
    for (const daemon of this.#daemons.toReversed()) await endProcess(daemon);
  }
}

/** The same kernel, initrd, disks and devices, on libvirt's q35 (it has no microvm). */
function describeDomain(lab: Lab, vm: PeerVm, name: string): string {
  return `<domain type='qemu'>
  <name>${name}</name><memory unit='MiB'>256</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type><kernel>${lab.sample.kernel}</kernel><initrd>${lab.sample.initrd}</initrd>
  <cmdline>${lab.sample.cmdline}</cmdline></os>
  <features><acpi/></features><cpu mode='maximum'/>
  <on_reboot>destroy</on_reboot><on_crash>destroy</on_crash>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
  <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='${vm.root}'/><target dev='vda' bus='virtio'/><serial>fluxvm-root</serial></disk>
  <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='${vm.config}'/><target dev='vdb' bus='virtio'/><readonly/><serial>fluxvm-config</serial></disk>
  <interface type='user'><model type='virtio'/><rom enabled='no'/></interface>
  <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
  <serial type='file'><source path='/var/log/libvirt/qemu/${name}-console.log'/><target port='0'/></serial>
  <channel type='unix'><source mode='bind' path='${vm.socket}'/><target type='virtio' name='fluxvm.agent'/></channel>
  </devices><seclabel type='none'/></domain>
`;
}

/** What the kernel offers, by devices and by system calls. Each is used once by the helper's binary. */
import { nativeProbe, type Probe } from "./probe-context.ts";

const AS_ROOT = "Run the daemon as root, or give its user access to the device.";

export const KERNEL_PROBES: readonly Probe[] = [
  nativeProbe("vhost-net", {
    missing: "Load it with: modprobe vhost_net. Without it, tap networking is slower; user-mode networking does not need it.",
    broken: AS_ROOT,
  }),
  nativeProbe("vhost-vsock", {
    missing: "Load it with: modprobe vhost_vsock. Without it, the guest agent is reached over virtio-serial, which always works.",
    broken: AS_ROOT,
  }),
  nativeProbe("tun", { missing: "Load it with: modprobe tun. Only user-mode networking works without it.", broken: AS_ROOT }),
  nativeProbe("user-namespace", {
    missing: "The kernel is built without user namespaces. The daemon must run as root.",
    broken:
      "Allow them with: sysctl -w user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1. Only a rootless daemon needs them.",
  }),
  nativeProbe("net-namespace", {
    missing: "The kernel is built without network namespaces. Isolated networks cannot be used.",
    broken: "Run the daemon as root.",
  }),
  nativeProbe("tc-bpf", {
    missing: "The kernel lacks clsact or cls_bpf (modprobe sch_ingress cls_bpf). Policies fall back to nftables.",
    broken: "Loading eBPF needs root and a kernel that is not in lockdown. Policies fall back to nftables.",
  }),
  nativeProbe("xdp", {
    missing: "The kernel has no XDP. It only makes dropping packets cheaper.",
    broken: "Loading eBPF needs root and a kernel that is not in lockdown.",
  }),
  nativeProbe("bpf-lsm", {
    missing: "Add bpf to the kernel's command line: lsm=landlock,lockdown,yama,integrity,bpf. Only the guards of Sentinel need it.",
    broken: "Kernel lockdown or missing privileges forbid it. Turn lockdown off to use the guards of Sentinel.",
  }),
  nativeProbe("btf", {
    missing: "Use a kernel built with CONFIG_DEBUG_INFO_BTF. Portable eBPF programs need it.",
  }),
  nativeProbe("landlock", {
    missing: "Use Linux 5.13 or newer with landlock in the lsm= list. Process sandboxes need it.",
  }),
  nativeProbe("seccomp", {
    missing: "Use a kernel built with CONFIG_SECCOMP_FILTER. VMMs run without their system call filter otherwise.",
  }),
  nativeProbe("userfaultfd", {
    missing: "Use a kernel built with CONFIG_USERFAULTFD. Snapshots are restored eagerly without it.",
    broken: "Allow it with: sysctl -w vm.unprivileged_userfaultfd=1, or run the daemon as root.",
  }),
  nativeProbe("hugepages", {
    missing: "Reserve some with: sysctl -w vm.nr_hugepages=512. Only VMs that ask for huge pages need them.",
    broken: "All reserved pages are in use. Reserve more with: sysctl -w vm.nr_hugepages=N.",
  }),
  nativeProbe(
    "reflink",
    {
      missing: "Put the state directory on XFS or Btrfs to clone disks without copying. On others, overlays and sparse copies are used.",
      broken: "The state directory cannot be written. Check its owner, mode and free space.",
    },
    (context) => [context.stateDir],
  ),
];

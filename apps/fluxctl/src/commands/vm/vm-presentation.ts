/** How VMs are shown. */
import type { NetworkSpec, VmView } from "@fluxvm/sdk";
import { formatBytes } from "@fluxvm/core";
import type { Presentation } from "../../output/printer.ts";
import { formatAge, formatPairs } from "../../output/text.ts";

export const VM_PRESENTATION: Presentation<VmView> = {
  name: (vm) => vm.name,
  columns: [
    { title: "NAME", value: (vm) => vm.name },
    { title: "STATE", value: (vm) => vm.state },
    { title: "IMAGE", value: (vm) => vm.image?.name },
    { title: "CPUS", value: (vm) => vm.vcpus },
    { title: "MEMORY", value: (vm) => formatBytes(vm.memory_mib * 1_048_576) },
    { title: "AGENT", value: (vm) => vm.agent.state },
    { title: "EXPIRES IN", value: (vm) => formatTtl(vm) },
    { title: "LABELS", value: (vm) => formatPairs(vm.labels) },
    { title: "ID", value: (vm) => vm.id },
  ],
  details: [
    { title: "Name", value: (vm) => vm.name },
    { title: "Id", value: (vm) => vm.id },
    { title: "State", value: (vm) => (vm.reason === undefined ? vm.state : `${vm.state} (${vm.reason})`) },
    { title: "Message", value: (vm) => vm.message },
    { title: "Image", value: (vm) => vm.image?.name },
    { title: "Kernel", value: (vm) => vm.kernel?.name },
    { title: "Backend", value: (vm) => [vm.backend, vm.machine, vm.accelerator].filter((part) => part !== undefined).join(", ") },
    { title: "Process", value: (vm) => vm.pid },
    { title: "CPUs", value: (vm) => vm.vcpus },
    { title: "Memory", value: (vm) => formatBytes(vm.memory_mib * 1_048_576) },
    { title: "Disk", value: (vm) => (vm.disk_bytes === undefined ? undefined : formatBytes(vm.disk_bytes)) },
    { title: "Network", value: (vm) => formatNetwork(vm.network) },
    { title: "Agent", value: (vm) => [vm.agent.state, vm.agent.version].filter((part) => part !== undefined).join(" ") },
    { title: "Labels", value: (vm) => formatPairs(vm.labels) },
    { title: "Created", value: (vm) => vm.created_at },
    { title: "Started", value: (vm) => vm.started_at },
    { title: "Stopped", value: (vm) => vm.stopped_at },
    { title: "Expires", value: (vm) => (vm.expires_at === undefined ? formatTtl(vm) : `${vm.expires_at} (in ${formatTtl(vm) ?? "?"})`) },
  ],
};

function formatTtl(vm: VmView): string | undefined {
  return vm.ttl_remaining_seconds === undefined ? undefined : formatAge(vm.ttl_remaining_seconds * 1000);
}

function formatNetwork(network: NetworkSpec): string {
  if (network.mode === "none") return "none";
  const forwards = (network.forwards ?? []).map(
    (f) => `${f.host_address ?? "127.0.0.1"}:${f.host_port}->${f.guest_port}/${f.protocol ?? "tcp"}`,
  );
  return [network.mode, ...forwards, ...(network.allow_cidrs ?? []).map((cidr) => `allow ${cidr}`)].join(" ");
}

/** One sentence on what an action came to. */
export function describeVm(vm: VmView): string {
  const ready = vm.first_command_ms === undefined ? "" : `, first command after ${Math.round(vm.first_command_ms)} ms`;
  const ttl = formatTtl(vm);
  return `${vm.name} is ${vm.state}${ready}${ttl === undefined ? "" : `, expires in ${ttl}`}`;
}

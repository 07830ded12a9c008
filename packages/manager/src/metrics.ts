/** What the manager counts. */
import { VM_STATES } from "@fluxvm/contracts";
import { counter, defineMetrics, gauge, histogram } from "@fluxvm/telemetry";

export const METRICS = defineMetrics({
  vms: gauge({ name: "fluxvm_vms", help: "VMs of this host by state.", labels: { state: [...VM_STATES] } }),
  vmsByBackend: gauge({ name: "fluxvm_vms_by_backend", help: "VMs of this host by backend.", labels: { backend: [] } }),
  agentsReady: gauge({ name: "fluxvm_vm_agents_ready", help: "VMs whose guest agent answers." }),
  transitions: counter({
    name: "fluxvm_vm_transitions_total",
    help: "State changes of VMs by the state entered.",
    labels: { to: [...VM_STATES, "gone"] },
  }),
  create: histogram({
    name: "fluxvm_vm_create_seconds",
    help: "From a create request to a running VM.",
    labels: { outcome: ["ok", "error"] },
  }),
  start: histogram({ name: "fluxvm_vm_start_seconds", help: "From the state starting to running." }),
  firstCommand: histogram({
    name: "fluxvm_vm_first_command_seconds",
    help: "From a request with ready=exec to the end of the first command in the guest.",
  }),
  adopted: counter({ name: "fluxvm_vms_adopted_total", help: "VMs taken over from an earlier daemon." }),
});

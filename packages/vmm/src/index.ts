export type {
  AgentEndpoint,
  FoundVmProcess,
  MigrationTarget,
  SnapshotTarget,
  VmBackend,
  VmChange,
  VmExit,
  VmProcess,
  VmProcessRecord,
  VmStats,
} from "./backend.ts";
export type { BackendCapabilities, BackendProbe } from "./capabilities.ts";
export type { BootPlan, DiskPlan, LaunchPlan, NetworkPlan, ResourceLimits } from "./launch-plan.ts";

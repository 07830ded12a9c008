export { computeDeadline, computeExpiryWallMs, computeRemainingMs, readNow, rebaseDeadline, type Deadline, type Now } from "./deadline.ts";
export type { ExecStream, ExecStreamOutput, FileAttributes, GuestAgent, GuestAgentState } from "./guest-agent.ts";
export { computeGuestConfig, computeWorkload, type GuestConfig, type GuestInterface, type GuestWorkload } from "./guest-config.ts";
export {
  VM_FILES,
  type Artifacts,
  type ConsoleLogs,
  type Disks,
  type Egress,
  type EngineConfig,
  type EnginePorts,
  type Guests,
  type HeldArtifacts,
  type HostIdentity,
  type ImageInfo,
  type KernelInfo,
  type Owner,
  type SeedSpec,
  type VmObserver,
  type Workspaces,
} from "./ports.ts";
export type { BootSpec, LeaseRecord, VmRecord, VmSpec } from "./vm-record.ts";
export type { VmPhase, VmState } from "./vm-state.ts";

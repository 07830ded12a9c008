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
export { adoptVms } from "./adopt.ts";
export { chooseBackend, type BackendCandidate, type BackendNeeds } from "./choose-backend.ts";
export { createVm, type NewVm } from "./create-vm.ts";
export { Slots } from "./slots.ts";
export { describeState, getProcessRecord, toVisiblePhase } from "./state-view.ts";
export { VmDriver, type RecordChange, type VmSnapshot } from "./vm-driver.ts";
export { DONE, judgeCreate, PENDING, type Judge, type Verdict } from "./waiters.ts";
export type { BootSpec, VmRecord, VmSpec } from "./vm-record.ts";
export type { DeleteReason, VmPhase, VmRequest, VmState } from "./vm-state.ts";

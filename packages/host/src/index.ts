export { CONTROLLERS, type CgroupLayout, type Controller } from "./cgroup/cgroup-mounts.ts";
export {
  openVmCgroups,
  type CgroupLimits,
  type CgroupUsage,
  type VmCgroup,
  type VmCgroups,
  type VmCgroupsOptions,
} from "./cgroup/vm-cgroups.ts";
export { readBootId, systemClock } from "./clock/system-clock.ts";
export { ensurePrivateDir, fsyncDir, toFileError, writeFileDurable, type PrivateDirOptions } from "./files/durable.ts";
export { acquireStateLock, type StateLock, type StateLockOptions } from "./files/state-lock.ts";
export type { CopyRequest, HostHelper, HostProcess, ProcessLauncher } from "./helper/host-helper.ts";
export { startHostHelper, type HostHelperOptions } from "./helper/start-host-helper.ts";
export { openEgressGuard, type EgressGuard, type EgressGuardOptions } from "./network/egress-guard.ts";
export type { EgressRule, EgressScope } from "./network/egress-rules.ts";
export {
  isSameProcess,
  type ProcessDescriptor,
  type ProcessExit,
  type ProcessIdentity,
  type ProcessMount,
  type ProcessOutput,
  type ProcessSpec,
  type SignalName,
} from "./process/process-spec.ts";
export { runTool, spawnTool, type RunningTool, type RunToolRequest, type ToolRequest, type ToolResult } from "./process/run-tool.ts";
export {
  getProbe,
  isUsable,
  PROBE_NAMES,
  type HostReport,
  type ProbeName,
  type ProbeResult,
  type ProbeStatus,
} from "./probe/host-report.ts";
export { probeHost, type ProbeHostOptions } from "./probe/probe-host.ts";

export { METRICS } from "./metrics.ts";
export type { HostService, ImageService, KernelService, ManagerConfig, ManagerPorts, VmUsers } from "./ports.ts";
export { createVmManager, type VmManager } from "./vm-manager.ts";

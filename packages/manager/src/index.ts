export type { HostService, ImageService, KernelService, ManagerConfig, ManagerPorts, VmUsers } from "./ports.ts";

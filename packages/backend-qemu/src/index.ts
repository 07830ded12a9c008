export {
  createQemuBackend,
  QEMU_BACKEND,
  QEMU_CAPABILITIES,
  type KvmVerdict,
  type QemuBackend,
  type QemuBackendOptions,
} from "./backend.ts";
export { parseQemuConfig, type QemuConfig, type QemuConfigInput } from "./config.ts";
export { AGENT_PORT } from "./plan.ts";

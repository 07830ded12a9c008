export { createQemuWorld, createRawDisk, type QemuWorld, type QemuWorldOptions } from "./qemu-world.ts";
export { QmpSimulator, type Fault, type QmpSimulatorOptions } from "./qmp-simulator.ts";

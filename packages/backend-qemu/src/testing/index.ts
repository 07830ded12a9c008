export { createQemuWorld, createRawDisk, type QemuWorld, type QemuWorldOptions } from "./qemu-world.ts";

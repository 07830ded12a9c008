/** The backend conformance suite on the real QEMU, emulated and on /dev/kvm where bare-metal guests run on it. */
import type { TestContext } from "node:test";
import { requireKvmDevice, requireRoot, requireTool } from "@fluxvm/host/testing";
import { runBackendConformance } from "@fluxvm/vmm/testing";
import { createQemuWorld } from "./testing/index.ts";

const gate = (t: TestContext): boolean => requireRoot(t) && requireTool(t, "qemu-system-x86_64");

runBackendConformance({ name: "qemu, emulated", gate, createWorld: async () => await createQemuWorld({ accelerator: "tcg" }) });

runBackendConformance({
  name: "qemu, kvm",
  gate: (t) => gate(t) && requireKvmDevice(t),
  // without arch-capabilities also a KVM that emulates instructions starts; bare-metal guests lose nothing by it
  createWorld: async () => await createQemuWorld({ accelerator: "kvm", config: { kvmCpu: "host,-arch-capabilities" } }),
});

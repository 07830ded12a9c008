/** How kernels are shown. */
import { formatBytes } from "@fluxvm/core";
import type { KernelView } from "@fluxvm/sdk";
import type { Presentation } from "../../output/printer.ts";

export const KERNEL_PRESENTATION: Presentation<KernelView> = {
  name: (kernel) => kernel.name,
  columns: [
    { title: "NAME", value: (kernel) => kernel.name },
    { title: "STATE", value: (kernel) => kernel.state },
    { title: "RELEASE", value: (kernel) => kernel.release },
    { title: "DEFAULT", value: (kernel) => (kernel.is_default ? "yes" : "no") },
    { title: "AGENT", value: (kernel) => (kernel.has_agent ? "yes" : "no") },
    { title: "USED BY", value: (kernel) => kernel.used_by.length },
    { title: "ID", value: (kernel) => kernel.id },
  ],
  details: [
    { title: "Name", value: (kernel) => kernel.name },
    { title: "Id", value: (kernel) => kernel.id },
    { title: "State", value: (kernel) => kernel.state },
    { title: "Error", value: (kernel) => (kernel.error === undefined ? undefined : `${kernel.error.message} (${kernel.error.code})`) },
    { title: "Source", value: (kernel) => kernel.source },
    { title: "Release", value: (kernel) => kernel.release },
    { title: "Digest", value: (kernel) => kernel.digest },
    { title: "Default", value: (kernel) => (kernel.is_default ? "yes" : "no") },
    { title: "Agent", value: (kernel) => (kernel.has_agent ? "in its initrd" : "none") },
    { title: "Stored", value: (kernel) => (kernel.stored_bytes === undefined ? undefined : formatBytes(kernel.stored_bytes)) },
    { title: "Used by", value: (kernel) => kernel.used_by.join(" ") },
    { title: "Created", value: (kernel) => kernel.created_at },
  ],
};

import type { Capability } from "@fluxvm/sdk";
import { defineCommand } from "../../command.ts";
import type { Presentation } from "../../output/printer.ts";

const CAPABILITY_PRESENTATION: Presentation<Capability> = {
  name: (capability) => capability.name,
  columns: [
    { title: "CAPABILITY", value: (capability) => capability.name },
    { title: "STATUS", value: (capability) => capability.status },
    { title: "DETAIL", value: (capability) => capability.detail },
  ],
};

export const hostReport = defineCommand({
  path: ["host", "report"],
  summary: "Show what the daemon's host can do",
  description:
    "Show what the daemon's host can do, what it cannot, why, and what to do about it. `fluxctl doctor` says it without a daemon.",
  options: [{ flags: "--refresh", description: "probe again instead of showing what is known" }],
  async run(context, input) {
    const client = await context.client();
    const report = await client.host.report({ refresh: input.isOn("refresh"), signal: context.signal });
    if (context.output === "json") context.printer.record(report, { name: (item) => item.kernel, columns: [] });
    else context.printer.list(report.capabilities, CAPABILITY_PRESENTATION);
    if (context.output !== "table") return 0;
    for (const { name, advice } of report.capabilities) if (advice !== undefined) context.printer.note(`${name}: ${advice}`);
    return 0;
  },
});

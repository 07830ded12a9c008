import { defineCommand } from "../../command.ts";
import { parseSeconds } from "../../option-values.ts";
import { describeVm, VM_PRESENTATION } from "./vm-presentation.ts";

export const vmExtend = defineCommand({
  path: ["vm", "extend"],
  summary: "Set how long a VM still has to live",
  arguments: [{ name: "<vm>", description: "id or name" }],
  options: [
    { flags: "--ttl <duration>", description: "from now, for example 30m (default: 1h)" },
    { flags: "--no-ttl", description: "keep it until it is deleted" },
  ],
  async run(context, input) {
    const seconds = input.isOff("ttl") ? null : Math.ceil(parseSeconds("--ttl", input.text("ttl") ?? "1h"));
    const client = await context.client();
    const vm = await client.vms.patch(input.argument(0), { ttl_seconds: seconds }, { signal: context.signal });
    context.printer.result(vm, VM_PRESENTATION, describeVm(vm));
    return 0;
  },
});

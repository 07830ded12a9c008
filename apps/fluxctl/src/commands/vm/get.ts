import { defineCommand } from "../../command.ts";
import { VM_PRESENTATION } from "./vm-presentation.ts";

export const vmGet = defineCommand({
  path: ["vm", "get"],
  aliases: ["show"],
  summary: "Show a VM",
  arguments: [{ name: "<vm>", description: "id or name" }],
  async run(context, input) {
    const client = await context.client();
    context.printer.record(await client.vms.get(input.argument(0), { signal: context.signal }), VM_PRESENTATION);
    return 0;
  },
});

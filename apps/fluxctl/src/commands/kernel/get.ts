import { defineCommand } from "../../command.ts";
import { KERNEL_PRESENTATION } from "./kernel-presentation.ts";

export const kernelGet = defineCommand({
  path: ["kernel", "get"],
  aliases: ["show"],
  summary: "Show a guest kernel",
  arguments: [{ name: "<kernel>", description: "id or name" }],
  async run(context, input) {
    const client = await context.client();
    context.printer.record(await client.kernels.get(input.argument(0), { signal: context.signal }), KERNEL_PRESENTATION);
    return 0;
  },
});

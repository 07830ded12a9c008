import { defineCommand } from "../../command.ts";
import { KERNEL_PRESENTATION } from "./kernel-presentation.ts";

export const kernelList = defineCommand({
  path: ["kernel", "list"],
  aliases: ["ls"],
  summary: "List guest kernels",
  async run(context) {
    const client = await context.client();
    context.printer.list(await client.kernels.list({ signal: context.signal }), KERNEL_PRESENTATION);
    return 0;
  },
});

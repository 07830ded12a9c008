import { isPlatformError } from "@fluxvm/core";
import { defineCommand } from "../../command.ts";

export const vmDelete = defineCommand({
  path: ["vm", "delete"],
  aliases: ["rm"],
  summary: "Delete VMs, running or not, with their disks",
  arguments: [{ name: "<vm...>", description: "ids or names" }],
  options: [{ flags: "--if-exists", description: "a VM that is not there is no error" }],
  async run(context, input) {
    const client = await context.client();
    for (const reference of input.rest(0)) {
      try {
        await client.vms.delete(reference, { signal: context.signal });
        context.printer.done(`${reference} is deleted`, { name: reference, deleted: true });
      } catch (error) {
        if (!input.isOn("ifExists") || !isPlatformError(error, "VM_NOT_FOUND")) throw error;
      }
    }
    return 0;
  },
});

import { defineCommand } from "../../command.ts";

export const kernelDelete = defineCommand({
  path: ["kernel", "delete"],
  aliases: ["rm"],
  summary: "Delete guest kernels that no VM uses, or cancel their import",
  arguments: [{ name: "<kernel...>", description: "ids or names" }],
  async run(context, input) {
    const client = await context.client();
    for (const reference of input.rest(0)) {
      await client.kernels.delete(reference, { signal: context.signal });
      context.printer.done(`${reference} is deleted`, { name: reference, deleted: true });
    }
    return 0;
  },
});

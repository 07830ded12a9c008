import { defineCommand } from "../../command.ts";

export const imageDelete = defineCommand({
  path: ["image", "delete"],
  aliases: ["rm"],
  summary: "Delete images that no VM uses, or cancel their import",
  arguments: [{ name: "<image...>", description: "ids, names or digests" }],
  async run(context, input) {
    const client = await context.client();
    for (const reference of input.rest(0)) {
      await client.images.delete(reference, { signal: context.signal });
      context.printer.done(`${reference} is deleted`, { name: reference, deleted: true });
    }
    return 0;
  },
});

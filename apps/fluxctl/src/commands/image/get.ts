import { defineCommand } from "../../command.ts";
import { IMAGE_PRESENTATION } from "./image-presentation.ts";

export const imageGet = defineCommand({
  path: ["image", "get"],
  aliases: ["show"],
  summary: "Show an image",
  arguments: [{ name: "<image>", description: "id, name or digest" }],
  async run(context, input) {
    const client = await context.client();
    context.printer.record(await client.images.get(input.argument(0), { signal: context.signal }), IMAGE_PRESENTATION);
    return 0;
  },
});

import { defineCommand } from "../../command.ts";
import { IMAGE_PRESENTATION } from "./image-presentation.ts";

export const imageList = defineCommand({
  path: ["image", "list"],
  aliases: ["ls"],
  summary: "List images",
  async run(context) {
    const client = await context.client();
    context.printer.list(await client.images.list({ signal: context.signal }), IMAGE_PRESENTATION);
    return 0;
  },
});

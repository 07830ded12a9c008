import { once } from "node:events";
import { defineCommand } from "../../command.ts";
import { requireGuestPlace } from "../../guest-path.ts";

export const fileCat = defineCommand({
  path: ["file", "cat"],
  summary: "Print a file of a VM",
  arguments: [{ name: "<vm:path>", description: "the file" }],
  async run(context, input) {
    const { vm, path } = requireGuestPlace(input.argument(0));
    const client = await context.client();
    const { stdout } = context.environment;
    const file = await client.files.read(vm, path, { signal: context.signal });
    for await (const chunk of file.content) {
      if (!stdout.write(chunk)) await once(stdout, "drain", { signal: context.signal });
    }
    return 0;
  },
});

import { defineCommand } from "../../command.ts";
import { requireGuestPlace } from "../../guest-path.ts";

export const fileRm = defineCommand({
  path: ["file", "rm"],
  aliases: ["remove"],
  summary: "Remove a file or directory in a VM",
  arguments: [{ name: "<vm:path>", description: "what to remove" }],
  options: [{ flags: "-r, --recursive", description: "with everything below it" }],
  async run(context, input) {
    const { vm, path } = requireGuestPlace(input.argument(0));
    const client = await context.client();
    await client.files.remove(vm, path, { recursive: input.isOn("recursive"), signal: context.signal });
    context.printer.done(`${vm}:${path} is removed`, { vm, path, removed: true });
    return 0;
  },
});

import { defineCommand } from "../../command.ts";
import { requireGuestPlace } from "../../guest-path.ts";
import { FILE_PRESENTATION } from "./ls.ts";

export const fileStat = defineCommand({
  path: ["file", "stat"],
  summary: "Show what a path in a VM is",
  arguments: [{ name: "<vm:path>", description: "the path" }],
  async run(context, input) {
    const { vm, path } = requireGuestPlace(input.argument(0));
    const client = await context.client();
    context.printer.record(await client.files.stat(vm, path, { signal: context.signal }), FILE_PRESENTATION);
    return 0;
  },
});

import { PlatformError } from "@fluxvm/core";
import { defineCommand } from "../../command.ts";
import { requireGuestPlace } from "../../guest-path.ts";

export const fileMv = defineCommand({
  path: ["file", "mv"],
  aliases: ["rename"],
  summary: "Rename a file or directory in a VM",
  arguments: [
    { name: "<vm:from>", description: "its path now" },
    { name: "<to>", description: "its new path, in the same VM" },
  ],
  async run(context, input) {
    const { vm, path } = requireGuestPlace(input.argument(0));
    const target = input.argument(1).startsWith("/") ? { vm, path: input.argument(1) } : requireGuestPlace(input.argument(1));
    if (target.vm !== vm) throw new PlatformError("REQUEST_INVALID", "Cannot rename from one VM to another: copy with `fluxctl cp`");
    const client = await context.client();
    await client.files.rename(vm, path, target.path, { signal: context.signal });
    context.printer.done(`${vm}:${path} is now ${target.path}`, { vm, from: path, to: target.path });
    return 0;
  },
});

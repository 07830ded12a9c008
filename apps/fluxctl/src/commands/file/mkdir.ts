import { defineCommand } from "../../command.ts";
import { requireGuestPlace } from "../../guest-path.ts";
import { parseMode } from "../../option-values.ts";

export const fileMkdir = defineCommand({
  path: ["file", "mkdir"],
  summary: "Make a directory in a VM",
  arguments: [{ name: "<vm:path>", description: "the directory" }],
  options: [
    { flags: "-p, --parents", description: "make missing parents; one that is there is no error" },
    { flags: "-m, --mode <mode>", description: "octal permissions, for example 750" },
  ],
  async run(context, input) {
    const { vm, path } = requireGuestPlace(input.argument(0));
    const mode = input.text("mode");
    const client = await context.client();
    const attributes = { parents: input.isOn("parents"), ...(mode === undefined ? {} : { mode: parseMode("--mode", mode) }) };
    await client.files.makeDirectory(vm, path, { ...attributes, signal: context.signal });
    context.printer.done(`${vm}:${path} is made`, { vm, path, made: true });
    return 0;
  },
});

import { defineCommand } from "../../command.ts";
import { followImport } from "../../imports/import-object.ts";
import { KERNEL_PRESENTATION } from "./kernel-presentation.ts";

export const kernelImport = defineCommand({
  path: ["kernel", "import"],
  aliases: ["pull"],
  summary: "Make a guest kernel of a source",
  description:
    "Make a guest kernel of a source: debian:SUITE (its cloud kernel), or the path of a bzImage or PVH ELF. The first one becomes the default.",
  arguments: [{ name: "<source>", description: "where the kernel comes from" }],
  options: [
    { flags: "--modules <directory>", description: "for a bzImage: its lib/modules/VERSION" },
    { flags: "--name <name>", description: "name to refer to it by (default: the kernel's release)" },
    { flags: "--no-initrd", description: "without initrd and agent, for bare payloads" },
    { flags: "-d, --detach", description: "do not wait for the import's end" },
  ],
  examples: ["fluxctl kernel import debian:bookworm"],
  async run(context, input) {
    const client = await context.client();
    const request = {
      source: input.argument(0),
      ...(input.text("modules") === undefined ? {} : { modules: input.text("modules") }),
      ...(input.text("name") === undefined ? {} : { name: input.text("name") }),
      ...(input.isOff("initrd") ? { initrd: false } : {}),
    };
    const started = await client.kernels.create(request, { signal: context.signal });
    const kernel = input.isOn("detach") ? started : await followImport(context, client.kernels, started);
    context.printer.result(kernel, KERNEL_PRESENTATION, `${kernel.name} is ${kernel.state} (${kernel.id})`);
    return 0;
  },
});

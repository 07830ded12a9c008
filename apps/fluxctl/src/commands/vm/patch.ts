import { PlatformError } from "@fluxvm/core";
import { defineCommand } from "../../command.ts";
import { parsePairs, parseSeconds } from "../../option-values.ts";
import { describeVm, VM_PRESENTATION } from "./vm-presentation.ts";

export const vmPatch = defineCommand({
  path: ["vm", "patch"],
  summary: "Change a VM's name, labels or time to live",
  arguments: [{ name: "<vm>", description: "id or name" }],
  options: [
    { flags: "--name <name>", description: "new name" },
    { flags: "-l, --label <key=value>", description: "set a label", isList: true },
    { flags: "--unlabel <key>", description: "remove a label", isList: true },
    { flags: "--ttl <duration>", description: "delete it after this long from now" },
    { flags: "--no-ttl", description: "keep it until it is deleted" },
  ],
  examples: ["fluxctl vm patch web --name web-old --label tier=old --unlabel canary --no-ttl"],
  async run(context, input) {
    const removed = input.texts("unlabel").map((key) => [key, null] as const);
    const labels = { ...parsePairs("--label", input.texts("label")), ...Object.fromEntries(removed) };
    const ttl = input.text("ttl");
    const request = {
      ...(input.text("name") === undefined ? {} : { name: input.text("name") }),
      ...(Object.keys(labels).length === 0 ? {} : { labels }),
      ...(ttl === undefined ? {} : { ttl_seconds: Math.ceil(parseSeconds("--ttl", ttl)) }),
      ...(input.isOff("ttl") ? { ttl_seconds: null } : {}),
    };
    if (Object.keys(request).length === 0)
      throw new PlatformError("REQUEST_INVALID", "Nothing to change: give --name, --label, --unlabel, --ttl or --no-ttl");
    const client = await context.client();
    const vm = await client.vms.patch(input.argument(0), request, { signal: context.signal });
    context.printer.result(vm, VM_PRESENTATION, describeVm(vm));
    return 0;
  },
});

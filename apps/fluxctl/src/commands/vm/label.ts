import { PlatformError } from "@fluxvm/core";
import { defineCommand } from "../../command.ts";
import { formatPairs } from "../../output/text.ts";
import { parsePairs } from "../../option-values.ts";
import { VM_PRESENTATION } from "./vm-presentation.ts";

export const vmLabel = defineCommand({
  path: ["vm", "label"],
  summary: "Set and remove labels",
  arguments: [
    { name: "<vm>", description: "id or name" },
    { name: "<labels...>", description: "KEY=value sets one, KEY- removes one" },
  ],
  examples: ["fluxctl vm label web tier=front canary-"],
  async run(context, input) {
    const words = input.rest(1);
    const labels: Record<string, string | null> = {};
    for (const word of words) {
      if (word.endsWith("-") && !word.includes("=")) labels[word.slice(0, -1)] = null;
      else Object.assign(labels, parsePairs("label", [word]));
    }
    if (words.length === 0) throw new PlatformError("REQUEST_INVALID", "Nothing to change: give KEY=value or KEY-");
    const client = await context.client();
    const vm = await client.vms.patch(input.argument(0), { labels }, { signal: context.signal });
    context.printer.result(vm, VM_PRESENTATION, `${vm.name}: ${formatPairs(vm.labels) || "no labels"}`);
    return 0;
  },
});

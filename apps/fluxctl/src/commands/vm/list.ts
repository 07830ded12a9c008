import { VM_STATES } from "@fluxvm/contracts";
import { defineCommand } from "../../command.ts";
import { VM_PRESENTATION } from "./vm-presentation.ts";

export const vmList = defineCommand({
  path: ["vm", "list"],
  aliases: ["ls"],
  summary: "List VMs",
  options: [
    { flags: "--name <name>", description: "only the one of this name" },
    { flags: "-l, --label <selector>", description: "only those it selects: k=v,k2!=v,k3,!k4" },
    { flags: "--state <state>", description: "only those in this state", choices: VM_STATES },
  ],
  examples: ["fluxctl vm list --label tier=web,!canary --output name"],
  async run(context, input) {
    const client = await context.client();
    const state = VM_STATES.find((name) => name === input.text("state"));
    const query = { name: input.text("name"), label: input.text("label"), state };
    context.printer.list(await client.vms.list(query, { signal: context.signal }), VM_PRESENTATION);
    return 0;
  },
});

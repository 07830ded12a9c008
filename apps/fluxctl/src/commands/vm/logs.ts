import { once } from "node:events";
import { defineCommand, type CommandDefinition } from "../../command.ts";
import { parseInteger } from "../../option-values.ts";

/** The same command under two names, since everybody looks for `logs` at the top. */
function defineLogs(path: readonly string[]): CommandDefinition {
  return defineCommand({
    path,
    summary: "Show what a VM printed on its console",
    arguments: [{ name: "<vm>", description: "id or name" }],
    options: [
      { flags: "-f, --follow", description: "go on with what comes" },
      { flags: "-n, --lines <count>", description: "so many of the last lines (default: 100)" },
    ],
    async run(context, input) {
      const client = await context.client();
      const { stdout } = context.environment;
      const lines = parseInteger("--lines", input.text("lines") ?? "100");
      for await (const chunk of client.vms.logs(input.argument(0), { lines, follow: input.isOn("follow") }, { signal: context.signal })) {
        if (!stdout.write(chunk)) await once(stdout, "drain", { signal: context.signal });
      }
      return 0;
    },
  });
}

export const vmLogs = defineLogs(["vm", "logs"]);
export const logs = defineLogs(["logs"]);

import { formatBytes } from "@fluxvm/core";
import type { ExecView } from "@fluxvm/sdk";
import { defineCommand } from "../../command.ts";
import type { Presentation } from "../../output/printer.ts";

const EXEC_PRESENTATION: Presentation<ExecView> = {
  name: (exec) => exec.id,
  columns: [
    { title: "ID", value: (exec) => exec.id },
    {
      title: "STATE",
      value: (exec) => (exec.exit === undefined ? exec.state : `${exec.state} ${exec.exit.signal ?? exec.exit.code ?? ""}`),
    },
    { title: "PID", value: (exec) => exec.pid },
    { title: "OUTPUT", value: (exec) => formatBytes(exec.stdout_bytes + exec.stderr_bytes) },
    { title: "COMMAND", value: (exec) => exec.command.join(" ").slice(0, 80) },
  ],
};

export const execs = defineCommand({
  path: ["execs"],
  summary: "List the commands of a VM",
  arguments: [{ name: "<vm>", description: "id or name" }],
  async run(context, input) {
    const client = await context.client();
    context.printer.list(await client.execs.list(input.argument(0), { signal: context.signal }), EXEC_PRESENTATION);
    return 0;
  },
});

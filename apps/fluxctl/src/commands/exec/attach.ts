import { collect } from "../../attach/run-exec.ts";
import { streamSession } from "../../attach/stream-session.ts";
import { defineCommand } from "../../command.ts";

const WORKLOAD = "workload";

export const attach = defineCommand({
  path: ["attach"],
  summary: "Attach to a command that runs in a VM",
  description:
    "Attach to a command that runs in a VM: to what the image runs, or to one started by `exec --detach`. Output nobody has taken yet comes first.",
  arguments: [
    { name: "<vm>", description: "id or name" },
    { name: "[exec]", description: "id of the command (default: workload, which is what the image runs)" },
  ],
  options: [{ flags: "-i, --interactive", description: "forward standard input" }],
  async run(context, input) {
    const client = await context.client();
    const [vm, execId] = [input.argument(0), input.optionalArgument(1) ?? WORKLOAD];
    const view = await client.execs.get(vm, execId, { signal: context.signal });
    const offsets = { stdoutOffset: view.stdout_acked, stderrOffset: view.stderr_acked };
    const session = client.execs.attach(vm, execId, { signal: context.signal, ...offsets });
    try {
      const code = await streamSession(context, session, {
        hasInput: input.isOn("interactive"),
        isTty: view.tty && input.isOn("interactive"),
      });
      if (execId !== WORKLOAD) await collect(context, session);
      return code;
    } finally {
      session.detach();
    }
  },
});

import { runExec } from "../../attach/run-exec.ts";
import { isTerminal } from "../../attach/raw-terminal.ts";
import { defineCommand } from "../../command.ts";

/** bash where there is one, else whatever sh is. */
const SHELL = ["/bin/sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -l; fi"];

export const console = defineCommand({
  path: ["console"],
  aliases: ["shell"],
  summary: "Open a shell in a VM",
  description: "Open a shell in a VM, through the guest agent. What the VM prints on its serial console is in `fluxctl logs`.",
  arguments: [{ name: "<vm>", description: "id or name" }],
  options: [{ flags: "-u, --user <user>", description: "name, uid or uid:gid (default: the image's user)" }],
  async run(context, input) {
    const user = input.text("user");
    const env = { TERM: context.environment.variables["TERM"] ?? "linux" };
    const request = { command: SHELL, env, ...(user === undefined ? {} : { user }) };
    return await runExec(context, { vm: input.argument(0), request, hasInput: true, isTty: isTerminal(context.environment) });
  },
});

import { PlatformError } from "@fluxvm/core";
import { defineCommand, type CommandDefinition } from "../../command.ts";
import { formatCompletion, SHELLS, type CompletionTree } from "../../completion/format-completion.ts";

/** Given the other commands, since it tells of them. */
export function defineCompletion(tree: CompletionTree): CommandDefinition {
  return defineCommand({
    path: ["completion"],
    summary: "Print a shell's completion script",
    arguments: [{ name: "<shell>", description: SHELLS.join(", ") }],
    examples: ["source <(fluxctl completion bash)", "fluxctl completion zsh > ~/.zfunc/_fluxctl", "fluxctl completion fish | source"],
    async run(context, input) {
      const shell = SHELLS.find((name) => name === input.argument(0));
      if (shell === undefined)
        throw new PlatformError("REQUEST_INVALID", `Invalid shell ${JSON.stringify(input.argument(0))}: one of ${SHELLS.join(", ")}`);
      context.printer.text(formatCompletion(shell, tree));
      return await Promise.resolve(0);
    },
  });
}

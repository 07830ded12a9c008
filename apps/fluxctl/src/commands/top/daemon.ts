/** Commands of the daemon's own program: this process becomes it, so that nothing of the host side is loaded here. */
import { PlatformError } from "@fluxvm/core";
import { defineCommand, type CommandDefinition } from "../../command.ts";

function defineDaemonCommand(verb: string, about: Pick<CommandDefinition, "summary" | "description" | "examples">): CommandDefinition {
  return defineCommand({
    path: [verb],
    ...about,
    arguments: [{ name: "[arguments...]", description: `handed on as they are; \`fluxctl ${verb} --help\` lists them` }],
    takesAnything: true,
    async run(context, input) {
      await context.close();
      context.environment.becomeDaemon([verb, ...input.rest(0)]);
      throw new PlatformError(
        "HOST_CAPABILITY_MISSING",
        "Cannot become the daemon's program: this system or version of Node has no execve",
      );
    },
  });
}

export const serve = defineDaemonCommand("serve", {
  summary: "Run the daemon",
  description: "Run the daemon in the foreground. It goes on with every VM of its state directory, and stopping it stops none.",
  examples: ["fluxctl serve --config /etc/fluxvm/fluxvm.toml", "fluxctl serve --state-dir /tmp/fluxvm --listen ''"],
});

export const doctor = defineDaemonCommand("doctor", {
  summary: "Say what this host can do, and what to do about the rest",
  description: "Probe this host by doing: what works, what is missing or broken, why, and what to do. Needs no daemon.",
  examples: ["fluxctl doctor --json", "fluxctl doctor --refresh"],
});

/** `docs/manual/cli.md` from the command tree of fluxctl: what `--help` prints, for every command. */
import type { Command } from "commander";
import { markGenerated, type Generator } from "../generator.ts";

const WIDTH = 110;

const INTRO = `# Command line

\`fluxctl\` talks to the daemon over its Unix socket, or over TCP with a token. This page is what \`--help\` prints. Exit codes
are in [errors.md](errors.md). The global options, listed once at the top, hold for every command that talks to the daemon.
`;

export const cliPage: Generator = {
  name: "cli",
  async generate() {
    const { buildProgram } = await import("../../../apps/fluxctl/src/program.ts");
    const sections = listCommands(buildProgram(), "").map(({ path, command }) => {
      const help = captureHelp(command);
      const shown = path.includes(" ") ? help.replace(/^Global options:\n(?:.+\n)*\n?/m, "") : help;
      return `## ${path}\n\n\`\`\`text\n${shown.trim()}\n\`\`\`\n`;
    });
    return { "docs/manual/cli.md": [INTRO, markGenerated("the commands in `apps/fluxctl/src/commands/`"), "", ...sections].join("\n") };
  },
};

function listCommands(command: Command, parent: string): { path: string; command: Command }[] {
  const path = parent === "" ? command.name() : `${parent} ${command.name()}`;
  const visible = command.commands.filter((c) => c.name() !== "help" && command.createHelp().visibleCommands(command).includes(c));
  return [{ path, command }, ...visible.flatMap((c) => listCommands(c, path))];
}

function captureHelp(command: Command): string {
  let text = "";
  command.configureOutput({ writeOut: (part) => (text += part), getOutHelpWidth: () => WIDTH, getOutHasColors: () => false });
  command.outputHelp();
  return text.replaceAll(/[ \t]+$/gm, "");
}

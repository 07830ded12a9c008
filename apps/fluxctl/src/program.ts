/** Builds the parser from the command definitions. The manual's command page is generated from the same tree. */
import { Command, Option } from "commander";
import { CommandInput, type CommandDefinition } from "./command.ts";
import { COMMANDS, NOUNS } from "./commands/index.ts";
import { DEFAULT_SERVER, DEFAULT_TOKEN_FILE } from "./connection.ts";
import type { GlobalOptions } from "./context.ts";
import { OUTPUT_FORMATS, type OutputFormat } from "./output/printer.ts";

export interface CommandCall {
  readonly definition: CommandDefinition;
  readonly input: CommandInput;
  readonly globals: GlobalOptions;
}

/** `onCall` runs a command that was parsed; without one the program can only be looked at. */
export function buildProgram(onCall: (call: CommandCall) => Promise<void> = async () => await Promise.resolve()): Command {
  const program = new Command("fluxctl")
    .description("Virtual machines on this host: images become running VMs you can use, and they expire.")
    .enablePositionalOptions()
    .showHelpAfterError("Try `fluxctl --help`, or `--help` after any command.")
    .exitOverride();
  program.helpCommand("help [command]", "Show help for a command");
  for (const option of globalOptions()) program.addOption(option);
  for (const definition of COMMANDS) addCommand(program, definition, onCall);
  return program;
}

function addCommand(program: Command, definition: CommandDefinition, onCall: (call: CommandCall) => Promise<void>): void {
  const parent = findParent(program, definition.path.slice(0, -1));
  const command = parent.command(definition.path.at(-1) ?? "");
  command.summary(definition.summary).description(definition.description ?? `${definition.summary}.`);
  for (const alias of definition.aliases ?? []) command.alias(alias);
  for (const argument of definition.arguments ?? []) command.argument(argument.name, argument.description);
  for (const option of definition.options ?? []) command.addOption(toOption(option));
  if (definition.takesAnything === true) command.allowUnknownOption().helpOption(false).passThroughOptions();
  else for (const option of globalOptions()) command.addOption(option);
  if (definition.isPassThrough === true) command.passThroughOptions();
  if (definition.examples !== undefined)
    command.addHelpText("after", `\nExamples:\n${definition.examples.map((line) => `  ${line}\n`).join("")}`);
  command.action(async () => {
    const options = { ...program.opts<Record<string, unknown>>(), ...definedOnly(command.opts<Record<string, unknown>>()) };
    await onCall({ definition, input: new CommandInput(command.processedArgs, options), globals: readGlobals(options) });
  });
}

function findParent(program: Command, nouns: readonly string[]): Command {
  let parent = program;
  for (const noun of nouns) {
    const existing = parent.commands.find((command) => command.name() === noun);
    parent =
      existing ??
      parent
        .command(noun)
        .description(NOUNS[noun] ?? noun)
        .enablePositionalOptions();
  }
  return parent;
}

function toOption(definition: NonNullable<CommandDefinition["options"]>[number]): Option {
  const option = new Option(definition.flags, definition.description);
  if (definition.choices !== undefined) option.choices(definition.choices);
  if (definition.isList === true) option.argParser<string[]>((value, previous = []) => [...previous, value]);
  return option;
}

function globalOptions(): Option[] {
  const heading = "Global options:";
  return [
    new Option("--server <url>", `the daemon: unix:/path or http://host:port (FLUXVM_SERVER; else ${DEFAULT_SERVER})`).helpGroup(heading),
    new Option("--token-file <path>", `file with the token for TCP (FLUXVM_TOKEN; else ${DEFAULT_TOKEN_FILE})`).helpGroup(heading),
    new Option("-o, --output <format>", "how results are printed (default: table)").choices(OUTPUT_FORMATS).helpGroup(heading),
    new Option("-q, --quiet", "no progress and no remarks").helpGroup(heading),
  ];
}

function readGlobals(options: Readonly<Record<string, unknown>>): GlobalOptions {
  const text = (name: string): string | undefined => (typeof options[name] === "string" ? options[name] : undefined);
  const output = OUTPUT_FORMATS.find((format): format is OutputFormat => format === options["output"]) ?? "table";
  return { server: text("server"), tokenFile: text("tokenFile"), output, isQuiet: options["quiet"] === true };
}

function definedOnly(options: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

/** One run of the program: words in, exit code out. Every way out goes through here. */
import { PlatformError, toPlatformError } from "@fluxvm/core";
import { CommanderError, type Command } from "commander";
import { CommandContext } from "./context.ts";
import type { Environment } from "./environment.ts";
import type { OutputFormat } from "./output/printer.ts";
import { buildProgram, type CommandCall } from "./program.ts";
import { formatError } from "./report-error.ts";

const USAGE_EXIT = 2;

/** Runs the program with the words after its name. Never throws for what a user can do wrong. */
export async function runCli(words: readonly string[], environment: Environment): Promise<number> {
  let code = 0;
  let format: OutputFormat = "table";
  const program = buildProgram(async (call) => {
    format = call.globals.output;
    code = await runCommand(call, environment);
  });
  for (const command of walkCommands(program)) configure(command, environment);
  try {
    await program.parseAsync([...words], { from: "user" });
    return code;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE_EXIT;
    const reported = describe(error);
    environment.stderr.write(formatError(reported, format));
    return reported.exitCode;
  }
}

async function runCommand({ definition, input, globals }: CommandCall, environment: Environment): Promise<number> {
  const context = new CommandContext(environment, globals);
  try {
    return (await definition.run(context, input)) ?? 0;
  } catch (error) {
    throw context.signal.aborted ? toPlatformError(context.signal.reason) : error;
  } finally {
    await context.close();
  }
}

/** Local files have errors of their own, which are neither the daemon's nor ours. */
function describe(error: unknown): PlatformError {
  if (error instanceof Error && "syscall" in error && "path" in error) {
    const code = "code" in error ? String(error.code) : "";
    const kind = code === "ENOENT" ? "LOCAL_FILE_NOT_FOUND" : "LOCAL_FILE_FAILED";
    return new PlatformError(kind, `Cannot ${String(error.syscall)} ${String(error.path)}: ${explain(code)}`, { cause: error });
  }
  return toPlatformError(error);
}

function explain(code: string): string {
  const texts: Readonly<Record<string, string>> = {
    ENOENT: "there is no such file or directory",
    EACCES: "permission denied",
    EISDIR: "it is a directory",
    ENOTDIR: "a part of the path is no directory",
    EEXIST: "it exists",
    ENOSPC: "the disk is full",
  };
  return texts[code] ?? code;
}

function* walkCommands(command: Command): Generator<Command> {
  yield command;
  for (const child of command.commands) yield* walkCommands(child);
}

function configure(command: Command, environment: Environment): void {
  command.exitOverride().configureOutput({
    writeOut: (text) => void environment.stdout.write(text),
    writeErr: (text) => void environment.stderr.write(text),
    outputError: (text, write) => write(text.replace(/^error: /, "fluxctl: ")),
    getOutHelpWidth: () => environment.stdout.columns ?? 100,
    getErrHelpWidth: () => environment.stderr.columns ?? 100,
    getOutHasColors: () => false,
    getErrHasColors: () => false,
  });
}

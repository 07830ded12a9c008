/** What a command is: data about its words, and one function. `program.ts` turns definitions into a parser. */
import { PlatformError } from "@fluxvm/core";
import type { CommandContext } from "./context.ts";

export interface ArgumentDefinition {
  /** `<vm>` is required, `[lines]` optional, `[command...]` takes the rest. */
  readonly name: string;
  readonly description: string;
}

export interface OptionDefinition {
  /** As the user types it: `-t, --tty`, `--label <key=value>`. */
  readonly flags: string;
  readonly description: string;
  readonly choices?: readonly string[];
  /** May be given several times. */
  readonly isList?: boolean;
}

export interface CommandDefinition {
  /** The words that call it: `["vm", "create"]`. */
  readonly path: readonly string[];
  readonly summary: string;
  readonly description?: string;
  readonly aliases?: readonly string[];
  readonly arguments?: readonly ArgumentDefinition[];
  readonly options?: readonly OptionDefinition[];
  /** Whatever follows the first argument belongs to somebody else: it is not looked at for options. */
  readonly isPassThrough?: boolean;
  /** Options it does not know, and `--help`, are handed on as arguments. */
  readonly takesAnything?: boolean;
  readonly examples?: readonly string[];
  /** The result is the exit code; default 0. */
  readonly run: (context: CommandContext, input: CommandInput) => Promise<number | undefined>;
}

export function defineCommand(definition: CommandDefinition): CommandDefinition {
  return definition;
}

/** The words of one call, read by name and kind. */
export class CommandInput {
  readonly #args: readonly unknown[];
  readonly #options: Readonly<Record<string, unknown>>;

  constructor(args: readonly unknown[], options: Readonly<Record<string, unknown>>) {
    this.#args = args;
    this.#options = options;
  }

  /** A required argument: the parser has made sure of it. */
  argument(index: number): string {
    const value = this.#args[index];
    if (typeof value !== "string") throw new PlatformError("REQUEST_INVALID", `Argument ${index + 1} is missing`);
    return value;
  }

  optionalArgument(index: number): string | undefined {
    const value = this.#args[index];
    return typeof value === "string" ? value : undefined;
  }

  /** A variadic argument, without the `--` that may set it apart. */
  rest(index: number): readonly string[] {
    const value = this.#args[index];
    const words = Array.isArray(value) ? value.filter((word) => typeof word === "string") : [];
    return words[0] === "--" ? words.slice(1) : words;
  }

  text(option: string): string | undefined {
    const value = this.#options[option];
    return typeof value === "string" ? value : undefined;
  }

  texts(option: string): readonly string[] {
    const value = this.#options[option];
    return Array.isArray(value) ? value.filter((item) => typeof item === "string") : [];
  }

  /** Whether a switch is on. */
  isOn(option: string): boolean {
    return this.#options[option] === true;
  }

  /** Whether `--no-<option>` was given. */
  isOff(option: string): boolean {
    return this.#options[option] === false;
  }
}

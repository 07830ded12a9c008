/**
 * Command-line flags are configuration keys: `--state-dir` is `state_dir`, `--vm-launch-timeout-ms` is
 * `vm.launch_timeout_ms`. The list is made from the schema, so that a new key has its flag at once.
 */
import { ConfigSchema } from "@fluxvm/contracts";
import { findNearest, PlatformError } from "@fluxvm/core";

interface KeySchema {
  readonly type?: string;
  readonly anyOf?: readonly unknown[];
  readonly properties?: Readonly<Record<string, KeySchema>>;
  readonly description?: string;
  readonly default?: unknown;
}

export interface ConfigFlag {
  /** With the two dashes. */
  readonly name: string;
  /** Of the key, for example `["vm", "accel"]`. */
  readonly path: readonly string[];
  readonly type: "string" | "number" | "boolean" | "list";
  readonly description: string;
  /** The default in words; empty when there is none. */
  readonly fallback: string;
}

export const CONFIG_FLAGS: readonly ConfigFlag[] = listFlags(ConfigSchema as KeySchema, []); // a JSON Schema object

function listFlags(schema: KeySchema, path: readonly string[]): ConfigFlag[] {
  return Object.entries(schema.properties ?? {}).flatMap(([key, member]) => {
    const here = [...path, key];
    if (member.type === "object") return listFlags(member, here);
    const name = `--${here.join("-").replaceAll("_", "-")}`;
    return [{ name, path: here, type: flagType(member), description: member.description ?? "", fallback: describeDefault(member.default) }];
  });
}

function describeDefault(value: unknown): string {
  return Array.isArray(value) ? value.join(",") : typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value);
}

function flagType(schema: KeySchema): ConfigFlag["type"] {
  switch (schema.type) {
    case "array":
      return "list";
    case "integer":
    case "number":
      return "number";
    case "boolean":
      return "boolean";
    default:
      return "string";
  }
}

export interface ParsedFlags {
  /** Of `--config`. */
  readonly configPath: string | undefined;
  /** Keys that flags set, nested as in the file. */
  readonly overrides: Readonly<Record<string, unknown>>;
  /** Flags without a value that the command knows, for example `--json`. */
  readonly switches: ReadonlySet<string>;
}

/** @throws PlatformError `REQUEST_INVALID` */
export function parseFlags(args: readonly string[], knownSwitches: readonly string[]): ParsedFlags {
  const overrides: Record<string, unknown> = {};
  const switches = new Set<string>();
  let configPath: string | undefined;
  for (let i = 0; i < args.length; i += 1) {
    const [name = "", inline] = splitOnce(args[i] ?? "");
    if (knownSwitches.includes(name) && inline === undefined) {
      switches.add(name);
      continue;
    }
    const flag = CONFIG_FLAGS.find((f) => f.name === name);
    if (flag === undefined && name !== "--config") throw unknownFlag(name, knownSwitches);
    const value = inline ?? args[(i += 1)];
    if (value === undefined) throw new PlatformError("REQUEST_INVALID", `Flag ${name} needs a value`);
    if (flag === undefined) configPath = value;
    else setPath(overrides, flag.path, parseValue(flag, value));
  }
  return { configPath, overrides, switches };
}

function splitOnce(arg: string): [string, string | undefined] {
  const equals = arg.startsWith("--") ? arg.indexOf("=") : -1;
  return equals === -1 ? [arg, undefined] : [arg.slice(0, equals), arg.slice(equals + 1)];
}

/** Text that is no number or boolean stays text, for the schema to refuse in its own words. */
function parseValue(flag: ConfigFlag, text: string): unknown {
  switch (flag.type) {
    case "number":
      return /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text;
    case "boolean":
      return text === "true" ? true : text === "false" ? false : text;
    case "list":
      return text === "" ? [] : text.split(",");
    case "string":
      return text;
  }
}

function setPath(target: Record<string, unknown>, path: readonly string[], value: unknown): void {
  const [head = "", ...rest] = path;
  if (rest.length === 0) {
    target[head] = value;
    return;
  }
  const inner = (target[head] ?? {}) as Record<string, unknown>; // only this function fills it
  target[head] = inner;
  setPath(inner, rest, value);
}

function unknownFlag(name: string, knownSwitches: readonly string[]): PlatformError {
  const known = ["--config", ...knownSwitches, ...CONFIG_FLAGS.map((f) => f.name)];
  const nearest = findNearest(name, known);
  const what = name.startsWith("-") ? "flag" : "argument";
  return new PlatformError(
    "REQUEST_INVALID",
    `Unknown ${what} ${JSON.stringify(name)}${nearest === undefined ? "" : `, did you mean ${nearest}`}`,
  );
}

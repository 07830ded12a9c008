/** One TOML file and the flags over it, checked against the one schema, filled in with its defaults, and frozen. */
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { ConfigSchema, fillSchemaDefaults, findSchemaProblems, type Config, type SchemaProblem } from "@fluxvm/contracts";
import { PlatformError } from "@fluxvm/core";
import { parse, TomlError } from "smol-toml";
import { findKeyLine } from "./key-line.ts";

export interface ConfigSource {
  /** Asked for by flag or environment: it must be there. */
  readonly path?: string | undefined;
  /** Read if it is there. */
  readonly fallbackPath?: string | undefined;
  readonly overrides: Readonly<Record<string, unknown>>;
}

const DEFAULT_STATE_DIR = "/var/lib/fluxvm";
const DEFAULT_RUN_DIR = "/run/fluxvm";
/** `sun_path` of a Unix socket address holds 108 bytes with its end. */
const MAX_SOCKET_PATH_BYTES = 107;

/** @throws PlatformError `CONFIG_INVALID`, `CONFIG_UNREADABLE` */
export function loadConfig(source: ConfigSource): Config {
  const file = readConfigFile(source);
  const merged = merge(file?.values ?? {}, source.overrides);
  const problems = findSchemaProblems(ConfigSchema, merged);
  const [first] = problems;
  if (first !== undefined) throw describeProblem(first, file, source.overrides);
  const config = fillSchemaDefaults(ConfigSchema, merged, { deep: true }) as Config; // complete: every key has a default
  return freeze(resolvePaths(config));
}

interface ConfigFile {
  readonly path: string;
  readonly text: string;
  readonly values: Readonly<Record<string, unknown>>;
}

function readConfigFile(source: ConfigSource): ConfigFile | undefined {
  const path = source.path ?? source.fallbackPath;
  if (path === undefined) return undefined;
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException; // node:fs throws these
    if (source.path === undefined && code === "ENOENT") return undefined;
    throw new PlatformError("CONFIG_UNREADABLE", `Cannot load config: ${path} cannot be read (${code ?? "unknown error"})`, { cause });
  }
  try {
    return { path, text, values: parse(text) };
  } catch (cause) {
    const where = cause instanceof TomlError ? `${path}:${cause.line}` : path;
    const what = cause instanceof Error ? (cause.message.split("\n", 1)[0] ?? "").replace(/^Invalid TOML document: /, "") : "not TOML";
    throw new PlatformError("CONFIG_INVALID", `Cannot load config: ${what} (${where})`, { cause });
  }
}

function describeProblem(
  problem: SchemaProblem,
  file: ConfigFile | undefined,
  overrides: Readonly<Record<string, unknown>>,
): PlatformError {
  const path = problem.path.split(".");
  const line = file === undefined || hasPath(overrides, path) ? undefined : findKeyLine(file.text, path);
  const where = file === undefined || line === undefined ? "" : ` (${file.path}:${line})`;
  const hint = problem.suggestion === undefined ? "" : `, did you mean ${JSON.stringify(problem.suggestion)}`;
  const what =
    problem.kind === "unknown"
      ? `unknown key ${JSON.stringify(problem.path)}${hint}`
      : `${JSON.stringify(problem.path)} ${problem.message}`;
  return new PlatformError("CONFIG_INVALID", `Cannot load config: ${what}${where}`, {
    fields: [{ path: problem.path, message: problem.message }],
  });
}

function hasPath(values: Readonly<Record<string, unknown>>, path: readonly string[]): boolean {
  let current: unknown = values;
  for (const key of path) {
    if (!isTable(current) || !Object.hasOwn(current, key)) return false;
    current = current[key];
  }
  return true;
}

function merge(base: Readonly<Record<string, unknown>>, over: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const merged: Record<string, unknown> = { ...base };
  for (const [key, value] of Object.entries(over)) {
    const below = merged[key];
    merged[key] = isTable(value) && isTable(below) ? merge(below, value) : value;
  }
  return merged;
}

function isTable(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Date);
}

function resolvePaths(config: Config): Config {
  const stateDir = resolve(config.state_dir);
  const runDir = config.run_dir !== "" ? resolve(config.run_dir) : stateDir === DEFAULT_STATE_DIR ? DEFAULT_RUN_DIR : join(stateDir, "run");
  const socket = config.socket !== "" ? resolve(config.socket) : join(runDir, "fluxvm.sock");
  if (Buffer.byteLength(socket) > MAX_SOCKET_PATH_BYTES) {
    throw new PlatformError(
      "CONFIG_INVALID",
      `Cannot load config: the path of the Unix socket is longer than ${MAX_SOCKET_PATH_BYTES} bytes (${socket}); set "socket"`,
    );
  }
  return { ...config, state_dir: stateDir, run_dir: runDir, socket };
}

function freeze<T>(value: T): T {
  if (typeof value === "object" && value !== null) {
    Object.freeze(value);
    for (const member of Object.values(value)) freeze(member);
  }
  return value;
}

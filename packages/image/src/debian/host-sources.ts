/** Reads the host's apt configuration: its sources, and how it reaches them. */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { isPlatformError, PlatformError } from "@fluxvm/core";
import { runProgram } from "../program.ts";
import { formatDeb822, parseDeb822Sources, parseOneLineSources, selectSuite, type SourceEntry } from "./sources.ts";

const APT_DIRECTORY = "/etc/apt";
/** Options that say how packages are reached: proxies, timeouts, retries, TLS. */
const REACHING = /^(Acquire::(http|https|ftp|tor)(::|$)|Acquire::(Retries|Queue-Mode|ForceIPv4|ForceIPv6|Check-Valid-Until|Check-Date)\b)/i;

export function debianArchitecture(): string {
  return process.arch === "x64" ? "amd64" : process.arch;
}

/** A deb822 text of the suite's sources. @throws PlatformError `IMAGE_SOURCE_INVALID` when the host has none. */
export async function readSuiteSources(suite: string, directory = APT_DIRECTORY): Promise<string> {
  const selected = selectSuite(await readAll(directory), suite);
  if (selected.length === 0)
    throw new PlatformError("IMAGE_SOURCE_INVALID", `This host's apt sources have no suite ${JSON.stringify(suite)}`);
  return formatDeb822(selected);
}

async function readAll(directory: string): Promise<SourceEntry[]> {
  const architecture = debianArchitecture();
  const parts = join(directory, "sources.list.d");
  const names = (await readdir(parts).catch((): string[] => [])).toSorted();
  const paths = [join(directory, "sources.list"), ...names.map((name) => join(parts, name))];
  const entries: SourceEntry[] = [];
  for (const path of paths) {
    const text = await readFile(path, "utf8").catch(() => "");
    if (path.endsWith(".list")) entries.push(...parseOneLineSources(text, architecture));
    if (path.endsWith(".sources")) entries.push(...parseDeb822Sources(text, architecture));
  }
  return entries;
}

/** Lines `Name "value";` of the host's apt configuration that say how packages are reached. */
export async function readAptOptions(signal: AbortSignal): Promise<string[]> {
  const { stdout } = await runProgram({ command: "apt-config", args: ["dump"], timeoutMs: 30_000, signal }).catch((error: unknown) => {
    if (isPlatformError(error, "HOST_TOOL_MISSING"))
      throw new PlatformError("HOST_TOOL_MISSING", "A debian: source needs apt, which is not installed", { cause: error });
    throw error;
  });
  return stdout.split("\n").filter((line) => REACHING.test(line) && !line.endsWith(' "";'));
}

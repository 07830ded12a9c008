/** Programs of the host, run so that they and all they start end with the daemon, and their failures in our words. */
import { runTool, type ToolResult } from "@fluxvm/host";
import { isPlatformError, PlatformError, type ErrorCode } from "@fluxvm/core";
import { outOfSpace, saysOutOfSpace } from "./host-error.ts";

/** util-linux: a pid namespace that is killed with the process that made it, which is killed with its parent. */
const LEASH = ["setpriv", "--pdeathsig", "KILL", "--", "unshare", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"] as const;

export interface LeashedCommand {
  readonly command: string;
  readonly args: string[];
}

/**
 * A command line under which even a killed daemon leaves nobody behind who goes on writing. It needs root; without,
 * only the program itself is tied to the daemon.
 */
export function leash(command: string, args: readonly string[], options: { readonly isRoot: boolean }): LeashedCommand {
  const [first, ...rest] = options.isRoot ? LEASH : LEASH.slice(0, 4);
  return { command: first, args: [...rest, command, ...args] };
}

export interface ProgramOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  readonly onLine?: (line: string) => void;
  readonly maxOutputBytes?: number;
}

/** Runs a program to its end. @throws PlatformError `HOST_OUT_OF_SPACE`, and as `runTool`. */
export async function runProgram(options: ProgramOptions): Promise<ToolResult> {
  const { onLine, ...rest } = options;
  try {
    return await runTool({ ...rest, ...(onLine === undefined ? {} : { onLine: (line) => onLine(line) }) });
  } catch (error) {
    if (isPlatformError(error, "HOST_TOOL_FAILED") && saysOutOfSpace(error.message)) throw outOfSpace(error);
    throw error;
  }
}

/** Gives a failed program's error the code that fits what it was for; other errors pass. */
export function asImportError(error: unknown, code: ErrorCode, what: string): unknown {
  if (!isPlatformError(error, "HOST_TOOL_FAILED")) return error;
  if (saysOutOfSpace(error.message)) return outOfSpace(error);
  return new PlatformError(code, `${what}: ${error.message}`, { cause: error, details: error.details });
}

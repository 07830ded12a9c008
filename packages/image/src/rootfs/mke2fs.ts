/** The version of mke2fs is one of the inputs that shape a root file system. */
import { PlatformError } from "@fluxvm/core";
import { runProgram } from "../program.ts";

/** For example `1.47.0`. @throws PlatformError `HOST_TOOL_MISSING` */
export async function readMke2fsVersion(mke2fs: string, signal: AbortSignal): Promise<string> {
  const { stderr } = await runProgram({ command: mke2fs, args: ["-V"], timeoutMs: 10_000, signal });
  const version = /mke2fs (\S+)/.exec(stderr)?.[1];
  if (version === undefined) throw new PlatformError("HOST_TOOL_FAILED", "mke2fs did not tell its version", { details: { stderr } });
  return version;
}

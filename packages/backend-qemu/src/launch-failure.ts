/** Why a QEMU that ended before it was ready did so, in words for the user. */
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { PlatformError, type Clock } from "@fluxvm/core";
import type { ProcessExit } from "@fluxvm/host";
import type { LaunchPlan } from "@fluxvm/vmm";

const MAX_LINES = 5;
const MAX_LOG_BYTES = 65_536;
const MAX_LINE_LENGTH = 300;
/** The log's writer is a process of its own and may be a little behind. */
const LOG_ATTEMPTS = 10;
const LOG_WAIT_MS = 20;

/** The last lines QEMU wrote; empty when it wrote nothing. */
export async function readDiagnostics(path: string, clock: Clock): Promise<readonly string[]> {
  let last = "";
  for (let attempt = 0; attempt < LOG_ATTEMPTS; attempt += 1) {
    const text = await readLog(path);
    if (text !== "" && text === last) break;
    last = text;
    await clock.sleep(LOG_WAIT_MS);
  }
  return parseDiagnostics(last);
}

/** The file lies where an earlier QEMU of this VM could write, so a link or a pipe in its place is not followed. */
async function readLog(path: string): Promise<string> {
  try {
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      const { buffer, bytesRead } = await file.read({ buffer: Buffer.alloc(MAX_LOG_BYTES), position: 0 });
      return buffer.subarray(0, bytesRead).toString("utf8");
    } finally {
      await file.close();
    }
  } catch {
    return ""; // nothing was written
  }
}

export function parseDiagnostics(text: string): readonly string[] {
  const lines = text.split("\n").map((line) => line.replace(/^qemu-system-[a-z0-9_]+: /, "").trim());
  return lines
    .filter((line) => line !== "")
    .slice(-MAX_LINES)
    .map((line) => line.slice(0, MAX_LINE_LENGTH));
}

export function describeEarlyEnd(plan: LaunchPlan, exit: ProcessExit, lines: readonly string[]): PlatformError {
  const forward = lines.map((line) => /Could not set up host forwarding rule '([^']*)'/.exec(line)?.[1]).find((rule) => rule !== undefined);
  const details = { exit, lines };
  if (forward !== undefined) {
    return new PlatformError("PORT_IN_USE", `Cannot launch ${plan.vmId}: the host cannot listen for port forward ${forward}`, { details });
  }
  const how = exit.signal === undefined ? `exit code ${exit.code ?? "unknown"}` : exit.signal;
  const words = lines.length === 0 ? "it wrote nothing" : lines.map((line) => hidePaths(line, plan)).join("; ");
  return new PlatformError("VM_LAUNCH_FAILED", `Cannot launch ${plan.vmId}: QEMU ended at once (${how}): ${words}`, { details });
}

/** The message is for the user: file names are enough, and folders of the host are not theirs. */
function hidePaths(line: string, plan: LaunchPlan): string {
  return line.replaceAll(`${plan.workspace}/`, "").replaceAll(/\/(?:[\w.+@-]+\/)+/g, "");
}

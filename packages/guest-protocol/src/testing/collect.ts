/** Reads an attachment to its end. */
import type { ExecAttachment } from "../exec-attachment.ts";
import type { ExecExitStatus } from "../exec-types.ts";

export interface CollectedExec {
  readonly stdout: string;
  readonly stderr: string;
  readonly exit: ExecExitStatus;
}

/** Everything an exec wrote, acknowledged, and how it ended. */
export async function collectExec(attachment: ExecAttachment): Promise<CollectedExec> {
  const parts = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  for await (const item of attachment.output) {
    if (item.kind === "data") parts[item.stream].push(item.data);
    if (item.kind !== "exit") continue;
    attachment.ack({ stdout: item.stdoutBytes, stderr: item.stderrBytes });
    return { stdout: Buffer.concat(parts.stdout).toString(), stderr: Buffer.concat(parts.stderr).toString(), exit: item.exit };
  }
  throw new Error("the exec's output ended without an exit");
}

/** Starts a command in a guest, streams it, and leaves nothing of it in the guest when it is over. */
import { isPlatformError } from "@fluxvm/core";
import type { CreateExecRequest, ExecSession } from "@fluxvm/sdk";
import type { CommandContext } from "../context.ts";
import { requireTerminalInput, terminalSize } from "./raw-terminal.ts";
import { streamSession, type StreamOptions } from "./stream-session.ts";

export interface ExecWish extends StreamOptions {
  readonly vm: string;
  readonly request: Omit<CreateExecRequest, "tty" | "stdin">;
}

/** The command's own exit code. When we are interrupted or fail, the command is killed. */
export async function runExec(context: CommandContext, wish: ExecWish): Promise<number> {
  if (wish.isTty) requireTerminalInput(context.environment);
  const client = await context.client();
  const tty = wish.isTty ? { tty: terminalSize(context.environment) } : {};
  const session = await client.execs.start(
    wish.vm,
    { ...wish.request, stdin: wish.hasInput, ...tty },
    { signal: context.signal, onConnection: (state) => tellConnection(context, state, wish.isTty) },
  );
  try {
    return await streamSession(context, session, wish);
  } finally {
    session.detach();
    await collect(context, session);
  }
}

/** Forgets the exec in the guest. What cannot be reached now goes with the VM. */
export async function collect(context: CommandContext, session: ExecSession): Promise<void> {
  const client = await context.client();
  try {
    await client.execs.remove(session.vm, session.execId, { signal: AbortSignal.timeout(5000) });
  } catch (error) {
    if (!isPlatformError(error)) throw error;
  }
}

/** In raw mode a line needs its own carriage return. */
function tellConnection(context: CommandContext, state: "lost" | "attached", isRaw: boolean): void {
  if (context.isQuiet || state === "attached") return;
  const end = isRaw ? "\r\n" : "\n";
  context.environment.stderr.write(`fluxctl: lost the daemon; attaching again, nothing is lost${end}`);
}

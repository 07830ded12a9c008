/**
 * Joins this process to a command in a guest: its output comes out here, keys or piped input go in, signals and the
 * terminal's size are handed on, and its end becomes an exit code.
 *
 * Nobody waits for input to end: a command may exit while its input is still open. When our own output is closed
 * (`fluxctl exec … | head`) the stream ends, and with it the command, as it would in a pipe here.
 */
import { once } from "node:events";
import { constants } from "node:os";
import type { Writable } from "node:stream";
import type { ExecExit, ExecSession } from "@fluxvm/sdk";
import type { CommandContext } from "../context.ts";
import { enterRawMode, terminalSize } from "./raw-terminal.ts";

export interface StreamOptions {
  /** Forward standard input. */
  readonly hasInput: boolean;
  /** The command has a terminal, and ours becomes it. */
  readonly isTty: boolean;
}

const TIMED_OUT_EXIT = 124;
const SIGNAL_EXIT_BASE = 128;
const BROKEN_PIPE_EXIT = SIGNAL_EXIT_BASE + 13;
/** So many interrupts that the command ignores mean that we are to stop. */
const MAX_IGNORED_INTERRUPTS = 3;

/** Resolves with the exit code once the command has ended and its output is out. @throws what the session fails with */
export async function streamSession(context: CommandContext, session: ExecSession, options: StreamOptions): Promise<number> {
  const { environment } = context;
  const releases: (() => void)[] = [];
  const broken = new AbortController();
  try {
    releases.push(environment.onBrokenPipe(() => broken.abort()));
    if (options.isTty) releases.push(enterRawMode(environment), followSize(context, session));
    releases.push(forwardSignals(context, session));
    if (options.hasInput) releases.push(forwardInput(context, session));
    for await (const chunk of session.output()) {
      const target = chunk.stream === "stdout" ? environment.stdout : environment.stderr;
      await write(target, chunk.data, broken.signal);
      if (broken.signal.aborted) return BROKEN_PIPE_EXIT;
    }
    return toExitCode(await session.exited);
  } finally {
    for (const release of releases.toReversed()) release();
  }
}

/** The code a shell would give: 128 and the signal's number, 124 when its time was over. */
export function toExitCode(exit: ExecExit): number {
  if (exit.timed_out) return TIMED_OUT_EXIT;
  if (exit.code !== undefined) return exit.code;
  const numbers: Readonly<Record<string, number>> = constants.signals;
  return SIGNAL_EXIT_BASE + (numbers[exit.signal ?? ""] ?? 0);
}

/** Resolves when there is room for more, or when nobody reads any more. */
async function write(target: Writable, data: Uint8Array, broken: AbortSignal): Promise<void> {
  if (broken.aborted || target.write(data)) return;
  await once(target, "drain", { signal: broken }).catch(() => undefined); // the caller asks the signal
}

function followSize(context: CommandContext, session: ExecSession): () => void {
  const { stdout } = context.environment;
  const onResize = (): void => session.resize(terminalSize(context.environment));
  onResize();
  stdout.on("resize", onResize);
  return () => stdout.off("resize", onResize);
}

function forwardSignals(context: CommandContext, session: ExecSession): () => void {
  let ignored = 0;
  return context.interrupts.capture((name) => {
    ignored += 1;
    if (ignored > MAX_IGNORED_INTERRUPTS) return context.interrupts.cancel();
    session.signal(name).catch(() => undefined); // the session itself reports what is wrong with it
  });
}

function forwardInput(context: CommandContext, session: ExecSession): () => void {
  const { stdin } = context.environment;
  const onData = (data: Buffer): void => {
    stdin.pause();
    session.writeStdin(data).then(
      (isRead) => {
        if (isRead) stdin.resume();
      },
      () => undefined, // the output loop sees the session's failure
    );
  };
  const onEnd = (): void => session.endStdin();
  stdin.on("data", onData);
  stdin.on("end", onEnd);
  stdin.on("error", onEnd);
  return () => {
    stdin.off("data", onData);
    stdin.off("end", onEnd);
    stdin.off("error", onEnd);
    stdin.pause();
  };
}

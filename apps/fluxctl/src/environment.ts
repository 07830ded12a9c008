/**
 * Everything of the process that commands may see or do. `main.ts` makes the real one; tests make their own, so that a
 * command can be run whole without touching the process it runs in.
 */
import type { Readable, Writable } from "node:stream";

export interface TerminalInput extends Readable {
  readonly isTTY?: boolean;
  setRawMode?(mode: boolean): unknown;
}

export interface TerminalOutput extends Writable {
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
}

export type SignalName = "SIGINT" | "SIGTERM" | "SIGHUP" | "SIGQUIT";

export interface Environment {
  readonly variables: Readonly<Record<string, string | undefined>>;
  readonly stdin: TerminalInput;
  readonly stdout: TerminalOutput;
  readonly stderr: TerminalOutput;
  /** Milliseconds that never go back. */
  nowMs(): number;
  /** Calls the handler for each arrival of a signal; the result stops that. */
  onSignal(name: SignalName, handler: () => void): () => void;
  /** Calls the handler however the process ends; the result stops that. */
  onExit(handler: () => void): () => void;
  /** Calls the handler when nobody reads standard output any more; without one the process ends. The result stops that. */
  onBrokenPipe(handler: () => void): () => void;
  /** Ends the process at once. */
  exit(code: number): never;
  /** Becomes the daemon's program with these arguments. Returns only if the system refuses. */
  becomeDaemon(args: readonly string[]): void;
}

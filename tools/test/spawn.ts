/** Runs a program in a process group of its own, with a time limit for the whole group and bounded output. */
import { spawn } from "node:child_process";

export interface RunOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  readonly timeoutMs: number;
}

export interface RunOutcome {
  /** `undefined` when a signal ended it. */
  readonly code: number | undefined;
  readonly signal: string | undefined;
  readonly timedOut: boolean;
  /** Standard output and error as they came, the middle cut out when very long. */
  readonly output: string;
  readonly durationMs: number;
}

const MAX_OUTPUT_CHARS = 400_000;
/** Between the polite and the final signal. */
const GRACE_MS = 5000;

const running = new Set<number>();

/** Ends every group still running: for when the runner itself is told to stop. */
export function killRunning(): void {
  for (const pid of running) killGroup(pid, "SIGKILL");
}

export async function run(options: RunOptions): Promise<RunOutcome> {
  const started = performance.now();
  const child = spawn(options.command, options.args, {
    cwd: options.cwd,
    env: options.env ?? process.env,
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  const pid = child.pid;
  if (pid !== undefined) running.add(pid);
  let output = "";
  const take = (chunk: Buffer): void => {
    output += chunk.toString("utf8");
    if (output.length > 2 * MAX_OUTPUT_CHARS) output = cutMiddle(output);
  };
  child.stdout.on("data", take);
  child.stderr.on("data", take);
  let timedOut = false;
  const timers = [
    setTimeout(() => {
      timedOut = true;
      killGroup(pid, "SIGTERM");
    }, options.timeoutMs),
    setTimeout(() => killGroup(pid, "SIGKILL"), options.timeoutMs + GRACE_MS),
  ];
  // "exit" and not "close": a daemon left behind may hold the pipes open for ever
  const end = await new Promise<{ code: number | null; signal: string | null }>((resolve) => {
    child.once("error", (error) => {
      output += `${error.message}\n`;
      resolve({ code: 127, signal: null });
    });
    child.once("exit", (code, signal) => setImmediate(() => resolve({ code, signal })));
  });
  for (const timer of timers) clearTimeout(timer);
  if (pid !== undefined) running.delete(pid);
  child.stdout.destroy();
  child.stderr.destroy();
  const durationMs = performance.now() - started;
  return { code: end.code ?? undefined, signal: end.signal ?? undefined, timedOut, output: cutMiddle(output), durationMs };
}

function killGroup(pid: number | undefined, signal: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch {
    // the group has ended in between
  }
}

function cutMiddle(text: string): string {
  if (text.length <= MAX_OUTPUT_CHARS) return text;
  return `${text.slice(0, MAX_OUTPUT_CHARS / 2)}\n… cut …\n${text.slice(-MAX_OUTPUT_CHARS / 2)}`;
}

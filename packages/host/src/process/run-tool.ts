/**
 * One-shot external programs: bounded output, a deadline, and the whole process group killed at the end of either.
 * The environment is what the caller gives plus a fixed PATH and locale; nothing is inherited.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { statSync } from "node:fs";
import type { Readable, Writable } from "node:stream";
import { PlatformError } from "@fluxvm/core";
import { systemClock } from "../clock/system-clock.ts";

const TOOL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const DEFAULT_MAX_OUTPUT_BYTES = 1 << 20;
/** How much of the end of standard error is kept for the message. */
const STDERR_TAIL_BYTES = 16 << 10;
const MESSAGE_LINES = 5;
const MAX_LINE_BYTES = 64 << 10;
/** How long descendants may hold the pipes open after the program has ended. */
const LINGER_MS = 2000;

export interface ToolRequest {
  /** A name looked up in the system's folders, or an absolute path. */
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Run as this user; needs root. */
  readonly uid?: number;
  readonly gid?: number;
  readonly timeoutMs: number;
  /** Other exit codes that are no failure. */
  readonly okCodes?: readonly number[];
  /** Each whole line of either stream, without its end. */
  readonly onLine?: (line: string, stream: "stdout" | "stderr") => void;
  readonly signal: AbortSignal;
}

export interface RunToolRequest extends ToolRequest {
  readonly input?: string | Uint8Array;
  /** Of standard output; more is a failure. Default 1 MiB. */
  readonly maxOutputBytes?: number;
}

export interface ToolResult {
  readonly code: number;
  readonly stdout: string;
  /** The end of it. */
  readonly stderr: string;
}

export interface RunningTool {
  readonly stdin: Writable;
  /** Back-pressure reaches the program. */
  readonly stdout: Readable;
  /** Settles when the program has ended. @throws as `runTool`; `stdout` of the result is empty. */
  readonly done: Promise<ToolResult>;
  /** SIGKILL to the group. */
  kill(): void;
}

interface Started {
  readonly child: ChildProcess;
  readonly done: Promise<ToolResult>;
  fail(error: Error): void;
}

/**
 * Runs a program to its end.
 * @throws PlatformError `HOST_TOOL_MISSING`, `HOST_TOOL_FAILED` (its last lines in the message, `details.exitCode`),
 * `DEADLINE_EXCEEDED`; the signal's reason when it fired.
 */
export async function runTool(request: RunToolRequest): Promise<ToolResult> {
  const maxBytes = request.maxOutputBytes ?? DEFAULT_MAX_OUTPUT_BYTES;
  const chunks: Buffer[] = [];
  let size = 0;
  const started = startTool(request, request.input === undefined ? "ignore" : "pipe");
  started.child.stdout?.on("data", (chunk: Buffer) => {
    size += chunk.length;
    if (size <= maxBytes) chunks.push(chunk);
    else started.fail(new PlatformError("HOST_TOOL_FAILED", `${request.command} wrote more than ${maxBytes} bytes`));
  });
  if (request.input !== undefined) {
    started.child.stdin?.on("error", () => undefined); // it may end before it has read everything
    started.child.stdin?.end(request.input);
  }
  const result = await started.done;
  return { ...result, stdout: Buffer.concat(chunks).toString("utf8") };
}

/** Starts a program whose streams the caller pipes. `done` must be awaited. */
export function spawnTool(request: ToolRequest): RunningTool {
  const started = startTool(request, "pipe");
  const { stdin, stdout } = started.child;
  if (stdin === null || stdout === null) throw new PlatformError("HOST_TOOL_FAILED", `Cannot start ${request.command}`);
  stdin.on("error", () => undefined); // told through `done`
  return { stdin, stdout, done: started.done, kill: () => killGroup(started.child) };
}

function startTool(request: ToolRequest, stdin: "ignore" | "pipe"): Started {
  request.signal.throwIfAborted();
  const child = spawn(request.command, [...request.args], {
    stdio: [stdin, "pipe", "pipe"],
    detached: true,
    cwd: request.cwd ?? "/",
    env: { PATH: TOOL_PATH, LC_ALL: "C.UTF-8", ...request.env },
    ...(request.uid === undefined ? {} : { uid: request.uid }),
    ...(request.gid === undefined ? {} : { gid: request.gid }),
  });
  const tail = new Tail();
  child.stderr?.on("data", (chunk: Buffer) => tail.push(chunk));
  if (request.onLine !== undefined) readLines(child, request.onLine);
  let failure: Error | undefined;
  const fail = (error: Error): void => {
    failure ??= error;
    killGroup(child);
  };
  const onAbort = (): void => fail(request.signal.reason as Error); // reasons are errors here
  request.signal.addEventListener("abort", onAbort, { once: true });
  const what = `Timed out after ${request.timeoutMs} ms: ${request.command}`;
  const cancelTimer = systemClock.schedule(request.timeoutMs, () => fail(new PlatformError("DEADLINE_EXCEEDED", what)));
  const done = waitForEnd(child, request).then(({ code, signal }) => {
    if (failure !== undefined) throw failure;
    if (code !== null && (code === 0 || request.okCodes?.includes(code))) return { code, stdout: "", stderr: tail.text() };
    throw toolFailed(request, { code, signal, lines: tail.text() });
  });
  const settled = done.finally(() => {
    cancelTimer();
    request.signal.removeEventListener("abort", onAbort);
  });
  settled.catch(() => undefined); // a caller of `spawnTool` may look at it later
  return { child, done: settled, fail };
}

async function waitForEnd(child: ChildProcess, request: ToolRequest): Promise<{ code: number | null; signal: string | null }> {
  return await new Promise((resolve, reject) => {
    let cancelLinger: () => void = () => undefined;
    child.once("error", (error: NodeJS.ErrnoException) => reject(startFailed(request, error)));
    child.once("exit", () => {
      cancelLinger = systemClock.schedule(LINGER_MS, () => {
        killGroup(child, { afterExit: true });
        child.stdout?.destroy();
        child.stderr?.destroy();
      });
    });
    child.once("close", (code, signal) => {
      cancelLinger();
      resolve({ code, signal });
    });
  });
}

function startFailed(request: ToolRequest, error: NodeJS.ErrnoException): PlatformError {
  const cwdThere = request.cwd === undefined || statSync(request.cwd, { throwIfNoEntry: false })?.isDirectory() === true;
  if (error.code === "ENOENT" && cwdThere) {
    return new PlatformError("HOST_TOOL_MISSING", `${request.command} is not installed; "fluxctl doctor" says how to get it`, {
      cause: error,
    });
  }
  return new PlatformError("HOST_TOOL_FAILED", `Cannot start ${request.command}`, { cause: error });
}

function toolFailed(request: ToolRequest, end: { code: number | null; signal: string | null; lines: string }): PlatformError {
  const how = end.code === null ? `was killed by ${end.signal}` : `failed with exit code ${end.code}`;
  const lines = end.lines.trimEnd().split("\n").slice(-MESSAGE_LINES).join("\n");
  const message = lines === "" ? `${request.command} ${how}` : `${request.command} ${how}: ${lines}`;
  return new PlatformError("HOST_TOOL_FAILED", message, { details: { exitCode: end.code, signal: end.signal, args: request.args } });
}

function killGroup(child: ChildProcess, options: { readonly afterExit?: boolean } = {}): void {
  if (child.pid === undefined) return;
  const ended = child.exitCode !== null || child.signalCode !== null;
  if (ended && options.afterExit !== true) return;
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // nobody of the group is left
  }
}

/** The last bytes of a stream. */
class Tail {
  #buffer: Buffer = Buffer.alloc(0);

  push(chunk: Buffer): void {
    const joined = Buffer.concat([this.#buffer, chunk]);
    this.#buffer = joined.length > STDERR_TAIL_BYTES ? Buffer.from(joined.subarray(-STDERR_TAIL_BYTES)) : joined;
  }

  text(): string {
    return this.#buffer.toString("utf8");
  }
}

function readLines(child: ChildProcess, onLine: (line: string, stream: "stdout" | "stderr") => void): void {
  for (const stream of ["stdout", "stderr"] as const) {
    let rest: Buffer = Buffer.alloc(0);
    child[stream]?.on("data", (chunk: Buffer) => {
      rest = Buffer.concat([rest, chunk]);
      for (;;) {
        const end = rest.findIndex((byte) => byte === 10 || byte === 13);
        if (end < 0 && rest.length <= MAX_LINE_BYTES) break;
        const line = rest.subarray(0, end < 0 ? MAX_LINE_BYTES : end).toString("utf8");
        rest = rest.subarray(end < 0 ? MAX_LINE_BYTES : end + 1);
        if (line !== "") onLine(line, stream);
      }
    });
    child[stream]?.once("end", () => {
      if (rest.length > 0) onLine(rest.toString("utf8"), stream);
    });
  }
}

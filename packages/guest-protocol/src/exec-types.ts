/** What the exec requests carry, and how the guest's answers are read. */
import { MAX_EXECS } from "./limits.ts";
import { readText, Reply } from "./reply.ts";

export interface ExecCommand {
  /** Chosen by the caller: the same id again is the same exec. */
  readonly execId: string;
  readonly argv: readonly string[];
  readonly env?: readonly (readonly [string, string])[] | undefined;
  readonly cwd?: string | undefined;
  /** `name`, `uid`, `name:group` or `uid:gid`; default root, or the image's with `inheritImageEnv`. */
  readonly user?: string | undefined;
  readonly tty?: { readonly rows: number; readonly cols: number } | undefined;
  /** Killed after this long. */
  readonly timeoutMs?: number | undefined;
  /** Keeps standard input open for whoever attaches; otherwise it is empty. */
  readonly stdin?: boolean | undefined;
  /** Take environment, user and working directory of the image where none are given. */
  readonly inheritImageEnv?: boolean | undefined;
  /** `drop`: when nobody is attached and the buffer is full, the oldest output goes; `block` (default): the process waits. */
  readonly retain?: "block" | "drop" | undefined;
}

export interface ExecExitStatus {
  readonly code?: number | undefined;
  /** Such as `SIGKILL`. */
  readonly signal?: string | undefined;
  readonly timedOut: boolean;
}

/** Bytes numbered from the start of the exec that are still in the guest. */
export interface RetainedRange {
  readonly start: number;
  readonly end: number;
}

export interface ExecStatus {
  readonly execId: string;
  readonly argv: readonly string[];
  readonly pid: number;
  readonly tty: boolean;
  readonly state: "running" | "exited";
  readonly exit?: ExecExitStatus | undefined;
  readonly startedWallMs: number;
  readonly endedWallMs?: number | undefined;
  /** Input bytes received so far. */
  readonly stdinOffset: number;
  readonly stdout: RetainedRange;
  readonly stderr: RetainedRange;
  readonly attached: boolean;
}

export function parseExit(reply: Reply): ExecExitStatus {
  return {
    code: reply.has("code") ? reply.count("code") : undefined,
    signal: reply.optionalText("signal"),
    timedOut: reply.flag("timedOut"),
  };
}

function parseRange(reply: Reply): RetainedRange {
  return { start: reply.count("start"), end: reply.count("end") };
}

export function parseExecStatus(reply: Reply): ExecStatus {
  return {
    execId: reply.text("execId"),
    argv: reply.list("argv", 65_536, readText),
    pid: reply.count("pid"),
    tty: reply.flag("tty"),
    state: reply.oneOf("state", ["running", "exited"]),
    exit: reply.has("exit") ? parseExit(reply.object("exit")) : undefined,
    startedWallMs: reply.count("startedWallMs"),
    endedWallMs: reply.has("endedWallMs") ? reply.count("endedWallMs") : undefined,
    stdinOffset: reply.count("stdinOffset"),
    stdout: parseRange(reply.object("stdout")),
    stderr: parseRange(reply.object("stderr")),
    attached: reply.flag("attached"),
  };
}

export function parseExecList(reply: Reply): readonly ExecStatus[] {
  return reply.list("execs", MAX_EXECS, (item) => parseExecStatus(new Reply(item)));
}

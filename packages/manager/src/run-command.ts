/** One command in a guest, run to its end, with a bounded part of its output. */
import type { AgentExecRequest, AgentExecResult, CreateExecRequest, ExecExit } from "@fluxvm/contracts";
import { MIB, PlatformError, withDeadline, type CallOptions, type Clock } from "@fluxvm/core";
import type { ExecStream, GuestAgent } from "@fluxvm/engine";

/** Kept of each stream. The rest is read and dropped, so that the command is not held up. */
export const MAX_OUTPUT_BYTES = MIB;
const STDIN_CHUNK_BYTES = 65_536;
const CLEANUP_TIMEOUT_MS = 5_000;
const DEFAULT_TIMEOUT_SECONDS = 30;

export async function runCommand(
  agent: GuestAgent,
  request: AgentExecRequest,
  options: CallOptions & { readonly clock: Clock },
): Promise<AgentExecResult> {
  const { clock, signal } = options;
  const startedAtMs = clock.bootMs();
  const exec = await agent.createExec(toExecRequest(request), { signal });
  try {
    const stream = await agent.attachExec(exec.id, { stdout: 0, stderr: 0 }, { signal });
    try {
      if (request.stdin !== undefined) void feed(stream, Buffer.from(request.stdin)); // ends by itself: see there
      const { exit, stdout, stderr } = await collect(stream, signal);
      return {
        stdout: stdout.text(),
        stderr: stderr.text(),
        stdout_truncated: stdout.isCut,
        stderr_truncated: stderr.isCut,
        exit,
        duration_ms: clock.bootMs() - startedAtMs,
      };
    } finally {
      stream.detach();
    }
  } finally {
    // Also when the caller went away: kills what still runs. The agent's loss of it is its own end.
    await withDeadline(
      { clock, timeoutMs: CLEANUP_TIMEOUT_MS, what: "removing an exec" },
      async (fresh) => await agent.removeExec(exec.id, { signal: fresh }),
    ).catch(() => undefined);
  }
}

function toExecRequest(request: AgentExecRequest): CreateExecRequest {
  return {
    command: typeof request.command === "string" ? ["/bin/sh", "-c", request.command] : request.command,
    timeout_seconds: request.timeout_seconds ?? DEFAULT_TIMEOUT_SECONDS,
    stdin: request.stdin !== undefined,
    ...(request.env === undefined ? {} : { env: request.env }),
    ...(request.working_dir === undefined ? {} : { working_dir: request.working_dir }),
    ...(request.user === undefined ? {} : { user: request.user }),
  };
}

/** Never rejects: a command that does not read its input has ended or will. */
async function feed(stream: ExecStream, input: Uint8Array): Promise<void> {
  try {
    for (let offset = 0; offset < input.length; offset += STDIN_CHUNK_BYTES) {
      await stream.writeStdin(offset, input.subarray(offset, offset + STDIN_CHUNK_BYTES));
    }
    await stream.endStdin(input.length);
  } catch {
    // the exit says how it went
  }
}

async function collect(
  stream: ExecStream,
  signal: AbortSignal,
): Promise<{ readonly exit: ExecExit; readonly stdout: BoundedText; readonly stderr: BoundedText }> {
  const texts = { stdout: new BoundedText(MAX_OUTPUT_BYTES), stderr: new BoundedText(MAX_OUTPUT_BYTES) };
  const got = { stdout: 0, stderr: 0 };
  for await (const event of untilAborted(stream.output, signal)) {
    if (event.kind === "exit") return { exit: event.exit, ...texts };
    if (event.kind !== "data") continue;
    texts[event.stream].add(event.data);
    got[event.stream] = event.offset + event.data.length;
    stream.ack(got);
  }
  throw new PlatformError("AGENT_PROTOCOL", "The guest agent ended the output of a command without its exit");
}

/** A reader that stops at once when the signal fires, whatever the source does. */
async function* untilAborted<T>(source: AsyncIterable<T>, signal: AbortSignal): AsyncGenerator<T> {
  const iterator = source[Symbol.asyncIterator]();
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(signal.reason as Error); // reasons are errors here
  aborted.catch(() => undefined); // raced below
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    for (;;) {
      signal.throwIfAborted();
      const next = await Promise.race([iterator.next(), aborted]);
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

class BoundedText {
  readonly #bound: number;
  readonly #parts: Uint8Array[] = [];
  #length = 0;
  isCut = false;

  constructor(bound: number) {
    this.#bound = bound;
  }

  add(data: Uint8Array): void {
    const room = this.#bound - this.#length;
    if (data.length > room) this.isCut = true;
    if (room <= 0) return;
    const kept = data.subarray(0, room);
    this.#parts.push(Uint8Array.from(kept)); // the source may reuse its buffer
    this.#length += kept.length;
  }

  text(): string {
    return new TextDecoder().decode(Buffer.concat(this.#parts));
  }
}

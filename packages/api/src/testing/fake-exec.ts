/**
 * One command of a fake guest, with numbered and acknowledged output as a real one: what is unacknowledged stays, at
 * most a window of it, and a program that writes more waits.
 */
import type { CreateExecRequest, ExecExit, ExecView } from "@fluxvm/contracts";
import { PlatformError, type Clock } from "@fluxvm/core";
import type { ExecAttachment, ExecOutput } from "../platform.ts";
import type { FakeFiles } from "./fake-files.ts";
import { findProgram, type FakeIo } from "./fake-programs.ts";
import { Feed } from "./feed.ts";

const WINDOW_BYTES = 1_048_576;
const CHUNK_BYTES = 65_536;
type Stream = "stdout" | "stderr";

export class FakeExec {
  readonly id: string;
  readonly #request: CreateExecRequest;
  readonly #outputs = { stdout: new Feed(), stderr: new Feed() };
  readonly #acked = { stdout: 0, stderr: 0 };
  readonly #stdin = new Feed();
  readonly #wake = new Feed();
  readonly #kill = new AbortController();
  #exit: ExecExit | undefined;
  #cancelTimeout: () => void = () => undefined;

  constructor(id: string, request: CreateExecRequest, guest: { readonly clock: Clock; readonly files: FakeFiles }) {
    this.id = id;
    this.#request = request;
    const program = findProgram(request.command);
    if (program === undefined)
      throw new PlatformError("EXEC_START_FAILED", `Cannot start ${JSON.stringify(request.command[0])}: no such file or directory`);
    if (request.stdin !== true) this.#stdin.end();
    if (request.timeout_seconds !== undefined) {
      this.#cancelTimeout = guest.clock.schedule(request.timeout_seconds * 1000, () =>
        this.#finish({ signal: "SIGKILL", timed_out: true }),
      );
    }
    const io: FakeIo = {
      args: request.command,
      env: request.env ?? {},
      cwd: request.working_dir ?? "/",
      isTty: request.tty !== undefined,
      files: guest.files,
      write: async (stream, data) => await this.#write(stream, data),
      read: async () => await this.#read(),
      sleep: async (ms) => await guest.clock.sleep(ms, { signal: this.#kill.signal }),
    };
    program(io).then(
      (code) => this.#finish({ code, timed_out: false }),
      () => this.#finish({ code: 1, timed_out: false }), // killed, which has set the exit already, or a program that cannot go on
    );
  }

  get view(): ExecView {
    return {
      id: this.id,
      command: [...this.#request.command],
      pid: 100,
      state: this.#exit === undefined ? "running" : "exited",
      ...(this.#exit === undefined ? {} : { exit: this.#exit }),
      tty: this.#request.tty !== undefined,
      stdout_acked: this.#acked.stdout,
      stdout_bytes: this.#outputs.stdout.length,
      stderr_acked: this.#acked.stderr,
      stderr_bytes: this.#outputs.stderr.length,
    };
  }

  signal(name: string): void {
    const signal = name.startsWith("SIG") ? name : `SIG${name}`;
    if (signal === "SIGCONT" || signal === "SIGWINCH") return;
    this.#finish({ signal, timed_out: false });
  }

  attach(offsets: Readonly<Record<Stream, number>>, signal: AbortSignal): ExecAttachment {
    for (const stream of ["stdout", "stderr"] as const) {
      if (offsets[stream] < this.#acked[stream]) {
        throw new PlatformError("EXEC_OUTPUT_LOST", `${stream} before byte ${this.#acked[stream]} is gone, asked for ${offsets[stream]}`);
      }
      if (offsets[stream] > this.#outputs[stream].length)
        throw new PlatformError("REQUEST_INVALID", `${stream} has no byte ${offsets[stream]} yet`);
    }
    const detached = new AbortController();
    const inputs = new Feed();
    return {
      stdinOffset: this.#stdin.length,
      output: this.#follow(offsets, { inputs, signal: AbortSignal.any([signal, detached.signal]) }),
      ack: ({ stdout, stderr }) => this.#ack({ stdout, stderr }),
      writeStdin: async (offset, data) => {
        const known = this.#stdin.length - offset;
        if (known < 0) throw new PlatformError("REQUEST_INVALID", `Standard input has a gap before byte ${offset}`);
        if (!this.#stdin.isEnded && known < data.length) this.#stdin.push(data.subarray(known));
        inputs.push(Buffer.alloc(1));
        this.#wake.push(Buffer.alloc(0));
      },
      endStdin: async () => this.#stdin.end(),
      resize: async ({ rows, cols }) => {
        if (this.#request.tty !== undefined) await this.#write("stdout", Buffer.from(`[resized to ${cols}x${rows}]\r\n`));
      },
      signal: async (name) => this.signal(name),
      detach: () => detached.abort(new PlatformError("REQUEST_CANCELLED", "Detached")),
    };
  }

  async *#follow(
    from: Readonly<Record<Stream, number>>,
    consumer: { readonly inputs: Feed; readonly signal: AbortSignal },
  ): AsyncGenerator<ExecOutput, void, undefined> {
    const at = { ...from };
    let inputsSeen = 0;
    for (;;) {
      let isIdle = true;
      for (const stream of ["stdout", "stderr"] as const) {
        const data = this.#outputs[stream].from(at[stream]).subarray(0, CHUNK_BYTES);
        if (data.length === 0) continue;
        isIdle = false;
        yield { kind: "data", stream, offset: at[stream], data };
        at[stream] += data.length;
      }
      if (consumer.inputs.length > inputsSeen) {
        inputsSeen = consumer.inputs.length;
        isIdle = false;
        yield { kind: "stdin_ack", offset: this.#stdin.length };
      }
      if (!isIdle) continue;
      if (this.#exit !== undefined) {
        yield { kind: "exit", exit: this.#exit, stdoutBytes: at.stdout, stderrBytes: at.stderr };
        return;
      }
      await this.#wake.next(consumer.signal);
    }
  }

  #ack(offsets: Readonly<Record<Stream, number>>): void {
    for (const stream of ["stdout", "stderr"] as const) {
      this.#acked[stream] = Math.min(Math.max(this.#acked[stream], offsets[stream]), this.#outputs[stream].length);
    }
    this.#wake.push(Buffer.alloc(0));
  }

  async #write(stream: Stream, data: Uint8Array): Promise<void> {
    this.#kill.signal.throwIfAborted();
    const target: Stream = this.#request.tty === undefined ? stream : "stdout";
    while (this.#outputs[target].length - this.#acked[target] > WINDOW_BYTES) await this.#wake.next(this.#kill.signal);
    this.#outputs[target].push(data);
    this.#wake.push(Buffer.alloc(0));
  }

  #readPosition = 0;

  async #read(): Promise<Uint8Array | undefined> {
    for (;;) {
      const data = this.#stdin.from(this.#readPosition);
      if (data.length > 0) {
        this.#readPosition += data.length;
        return data;
      }
      if (this.#stdin.isEnded) return undefined;
      await this.#stdin.next(this.#kill.signal);
    }
  }

  #finish(exit: ExecExit): void {
    if (this.#exit !== undefined) return;
    this.#exit = exit;
    this.#cancelTimeout();
    this.#kill.abort(new Error("ended"));
    this.#wake.push(Buffer.alloc(0));
  }
}

/**
 * A command in a pretended guest, with the real rules of an exec's connection: output is numbered, kept until it is
 * acknowledged and bounded (a writer waits), input is taken at its offset and confirmed. What runs is a function.
 */
import type { ExecClientMessage, ExecExit, ExecServerMessage, ExecView } from "@fluxvm/contracts";
import type { WebSocket } from "ws";

export interface FakeProcess {
  readonly command: readonly string[];
  readonly tty: boolean;
  /** Bytes of standard input; `undefined` at its end. */
  read(): Promise<Buffer | undefined>;
  write(stream: "stdout" | "stderr", data: string | Uint8Array): Promise<void>;
  /** The next signal that is sent. */
  nextSignal(): Promise<string>;
  /** The last size told. */
  size(): { readonly rows: number; readonly cols: number } | undefined;
}
export type FakeProgram = (process: FakeProcess) => Promise<ExecExit | number>;

const OUTPUT_WINDOW = 262_144;
const MAX_FRAME = 32_768;

class Output {
  #base = 0;
  #held = Buffer.alloc(0);
  #waiters: (() => void)[] = [];

  get acked(): number {
    return this.#base;
  }

  get end(): number {
    return this.#base + this.#held.length;
  }

  async write(data: Buffer): Promise<void> {
    while (this.#held.length >= OUTPUT_WINDOW) await new Promise<void>((resolve) => this.#waiters.push(resolve));
    this.#held = Buffer.concat([this.#held, data]);
  }

  ack(offset: number): void {
    if (offset > this.end) throw new Error(`acknowledged ${offset} of ${this.end} bytes`);
    this.#held = this.#held.subarray(Math.max(0, offset - this.#base));
    this.#base = Math.max(this.#base, offset);
    for (const wake of this.#waiters.splice(0)) wake();
  }

  from(offset: number): Buffer {
    if (offset < this.#base) throw new Error(`asked for byte ${offset}, which was acknowledged`);
    return this.#held.subarray(offset - this.#base, offset - this.#base + MAX_FRAME);
  }
}

export class FakeExec {
  readonly id: string;
  readonly command: readonly string[];
  readonly tty: boolean;
  /** Everything an attached client did that it must not do. */
  readonly violations: string[] = [];
  readonly #output = { stdout: new Output(), stderr: new Output() };
  readonly #input: (Buffer | undefined)[] = [];
  readonly #signals: string[] = [];
  #inputOffset = 0;
  #inputEnded = false;
  #size: { rows: number; cols: number } | undefined;
  #exit: ExecExit | undefined;
  #client: { readonly socket: WebSocket; readonly sent: { stdout: number; stderr: number }; toldExit: boolean } | undefined;
  #wake: (() => void)[] = [];

  constructor(options: { readonly id: string; readonly command: readonly string[]; readonly tty: boolean; readonly program: FakeProgram }) {
    this.id = options.id;
    this.command = options.command;
    this.tty = options.tty;
    void this.#execute(options.program); // ends by setting #exit, never rejects
  }

  view(): ExecView {
    const { stdout, stderr } = this.#output;
    return {
      id: this.id,
      command: [...this.command],
      state: this.#exit === undefined ? "running" : "exited",
      ...(this.#exit === undefined ? {} : { exit: this.#exit }),
      tty: this.tty,
      stdout_acked: stdout.acked,
      stdout_bytes: stdout.end,
      stderr_acked: stderr.acked,
      stderr_bytes: stderr.end,
    };
  }

  /** Ends it from outside, whatever its program does. */
  end(exit: ExecExit): void {
    this.#exit ??= exit;
    this.#pump();
  }

  signal(name: string): void {
    this.#signals.push(name);
    this.#changed();
  }

  attach(socket: WebSocket, offsets: { readonly stdout: number; readonly stderr: number }): void {
    this.#client?.socket.terminate();
    const client = { socket, sent: { ...offsets }, toldExit: false };
    this.#client = client;
    socket.on("message", (data: Buffer, isBinary) => {
      try {
        if (isBinary) this.#onStdin(data);
        else this.#onMessage(JSON.parse(data.toString("utf8")) as ExecClientMessage); // the protocol's text frames
      } catch (error) {
        this.violations.push(String(error));
        socket.terminate();
      }
    });
    this.#send({ type: "attached", stdin_offset: this.#inputOffset });
    this.#pump();
  }

  async #execute(program: FakeProgram): Promise<void> {
    const outcome = await program(this.#process()).catch((error: unknown) => {
      this.violations.push(`program: ${String(error)}`);
      return 1;
    });
    this.#exit ??= typeof outcome === "number" ? { code: outcome, timed_out: false } : outcome;
    this.#pump();
  }

  #process(): FakeProcess {
    const { command, tty } = this;
    return {
      command,
      tty,
      read: async () => {
        while (this.#input.length === 0) await this.#change();
        return this.#input.shift();
      },
      write: async (stream, data) => {
        await this.#output[stream].write(Buffer.from(data));
        this.#pump();
      },
      nextSignal: async () => {
        for (;;) {
          const signal = this.#signals.shift();
          if (signal !== undefined) return signal;
          await this.#change();
        }
      },
      size: () => this.#size,
    };
  }

  #onStdin(frame: Buffer): void {
    const offset = Number(frame.readBigUInt64BE(1));
    const skip = this.#inputOffset - offset;
    if (frame[0] !== 0 || skip < 0) throw new Error(`input at ${offset} where ${this.#inputOffset} was due`);
    const data = frame.subarray(9 + skip);
    if (data.length > 0 && this.#inputEnded) throw new Error("input after its end");
    if (data.length > 0) this.#input.push(Buffer.from(data));
    this.#inputOffset += data.length;
    this.#send({ type: "stdin_ack", offset: this.#inputOffset });
    this.#changed();
  }

  #onMessage(message: ExecClientMessage): void {
    switch (message.type) {
      case "ack":
        this.#output.stdout.ack(message.stdout);
        this.#output.stderr.ack(message.stderr);
        return this.#pump();
      case "stdin_end":
        if (message.offset !== this.#inputOffset) throw new Error(`end of input at ${message.offset}, not ${this.#inputOffset}`);
        if (!this.#inputEnded) this.#input.push(undefined);
        this.#inputEnded = true;
        return this.#changed();
      case "resize":
        this.#size = { rows: message.rows, cols: message.cols };
        return this.#changed();
      case "signal":
        return this.signal(message.signal);
    }
  }

  /** Sends what the client has not got, then the end. */
  #pump(): void {
    const client = this.#client;
    if (client === undefined || client.socket.readyState !== client.socket.OPEN) return;
    for (const [stream, channel] of [["stdout", 1] as const, ["stderr", 2] as const]) {
      for (
        let data = this.#output[stream].from(client.sent[stream]);
        data.length > 0;
        data = this.#output[stream].from(client.sent[stream])
      ) {
        const frame = Buffer.alloc(9 + data.length);
        frame.writeUInt8(channel, 0);
        frame.writeBigUInt64BE(BigInt(client.sent[stream]), 1);
        data.copy(frame, 9);
        client.socket.send(frame);
        client.sent[stream] += data.length;
      }
    }
    if (this.#exit === undefined || client.toldExit) return;
    client.toldExit = true;
    this.#send({ type: "exit", exit: this.#exit, stdout_bytes: this.#output.stdout.end, stderr_bytes: this.#output.stderr.end });
  }

  #send(message: ExecServerMessage): void {
    this.#client?.socket.send(JSON.stringify(message));
  }

  async #change(): Promise<void> {
    await new Promise<void>((resolve) => this.#wake.push(resolve));
  }

  #changed(): void {
    for (const wake of this.#wake.splice(0)) wake();
  }
}

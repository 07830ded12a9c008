/**
 * One WebSocket client attached to an exec. The wire format is described in `contracts/src/rest/guest.ts`.
 *
 *     attach ──fails──▶ error frame, close 4000 + HTTP status
 *       │
 *     attached ──▶ output ⇄ acks, stdin, control ──exit──▶ exit frame ──last ack, or a moment──▶ close 1000
 *                     │
 *                     └── client gone, protocol error, daemon stopping: detach; the exec goes on
 *
 * Bounds: output is taken from the attachment only while the client has less than `UNACKED_LIMIT` unacknowledged and
 * the socket's buffer is below `BUFFER_LIMIT`; input waiting for the guest is at most `STDIN_LIMIT`, past which the
 * client has broken its window and is cut off. Control messages wait for nothing, so acks pass a full stdin.
 */
import type { ExecClientMessage, ExecServerMessage } from "@fluxvm/contracts";
import { assertNever, PlatformError, type Clock } from "@fluxvm/core";
import type { WebSocket } from "@fastify/websocket";
import type { ApiContext } from "./context.ts";
import { decodeClientMessage, decodeStdinFrame, encodeOutputFrame } from "./exec-frames.ts";
import { statusOf, translateError } from "./errors.ts";
import type { ExecAttachment, ExecOutput } from "./platform.ts";

const UNACKED_LIMIT = 4 * 1_048_576;
const BUFFER_LIMIT = 1_048_576;
const STDIN_LIMIT = 1_048_576;
/** What a waiting input message counts besides its bytes, so that empty ones are bounded too. */
const INPUT_COST = 256;
const PING_EVERY_MS = 30_000;
const LAST_ACK_PATIENCE_MS = 5000;

export interface ExecSocketOptions {
  readonly requestId: string;
  readonly attach: (signal: AbortSignal) => Promise<ExecAttachment>;
}

let attached = 0;

/** Resolves when the connection is over. Never rejects. */
export async function serveExecSocket(context: ApiContext, socket: WebSocket, options: ExecSocketOptions): Promise<void> {
  const gone = new AbortController();
  socket.once("close", () => gone.abort(new PlatformError("REQUEST_CANCELLED", "The caller went away")));
  const signal = AbortSignal.any([gone.signal, context.stopping]);
  const session = new ExecSession(socket, context.clock, signal);
  context.metrics.attachments.set((attached += 1));
  try {
    const attachment = await options.attach(signal);
    try {
      await session.run(attachment);
    } finally {
      attachment.detach();
    }
    socket.close(1000);
  } catch (thrown) {
    if (!gone.signal.aborted)
      closeWithError(socket, context.stopping.aborted ? new PlatformError("SHUTTING_DOWN", "The daemon is stopping") : thrown);
    context.logger.debug({ err: thrown, requestId: options.requestId }, "exec attachment ended");
  } finally {
    session.destroy();
    context.metrics.attachments.set((attached -= 1));
  }
}

function closeWithError(socket: WebSocket, thrown: unknown): void {
  const error = translateError(thrown);
  sendMessage(socket, { type: "error", error: { code: error.code, class: error.class, message: error.message } });
  socket.close(4000 + statusOf(error), error.code);
}

function sendMessage(socket: WebSocket, message: ExecServerMessage): void {
  socket.send(JSON.stringify(message));
}

class ExecSession {
  readonly #socket: WebSocket;
  readonly #clock: Clock;
  readonly #signal: AbortSignal;
  /** Rejects with what ends the session early: the caller gone, the daemon stopping, a broken protocol. */
  readonly #failed: Promise<never>;
  #fail: (error: unknown) => void = () => undefined;
  readonly #sent = { stdout: 0, stderr: 0 };
  readonly #acked = { stdout: 0, stderr: 0 };
  #wakeOnAck: (() => void) | undefined;
  #stdinPending = 0;
  #stdin: Promise<void> = Promise.resolve();
  #early: (() => void)[] = [];
  #attachment: ExecAttachment | undefined;
  #cancelPing: () => void = () => undefined;
  #isAlive = true;

  constructor(socket: WebSocket, clock: Clock, signal: AbortSignal) {
    this.#socket = socket;
    this.#clock = clock;
    this.#signal = signal;
    this.#failed = new Promise((_, reject) => {
      this.#fail = reject;
    });
    this.#failed.catch(() => undefined); // seen by whoever races it
    signal.addEventListener("abort", () => this.#fail(signal.reason), { once: true });
    socket.on("message", (data, isBinary) => this.#receive(data as Buffer, isBinary)); // binaryType is nodebuffer
    socket.on("pong", () => {
      this.#isAlive = true;
    });
    this.#schedulePing();
  }

  async run(attachment: ExecAttachment): Promise<void> {
    this.#attachment = attachment;
    sendMessage(this.#socket, { type: "attached", stdin_offset: attachment.stdinOffset });
    for (const deliver of this.#early) deliver();
    this.#early = [];
    await Promise.race([this.#pumpOutput(attachment), this.#failed]);
  }

  destroy(): void {
    this.#cancelPing();
    this.#socket.removeAllListeners("message");
  }

  async #pumpOutput(attachment: ExecAttachment): Promise<void> {
    for await (const output of attachment.output) {
      if (this.#signal.aborted) return;
      await this.#sendOutput(output);
      if (output.kind === "exit") {
        await this.#lastAck(output);
        return;
      }
    }
    throw new PlatformError("AGENT_UNREACHABLE", "The guest agent went away; attach again when it is back", { retryAfterMs: 1000 });
  }

  async #sendOutput(output: ExecOutput): Promise<void> {
    switch (output.kind) {
      case "data": {
        const end = output.offset + output.data.length;
        this.#sent[output.stream] = end;
        const flushed = this.#send(encodeOutputFrame(output));
        if (this.#socket.bufferedAmount > BUFFER_LIMIT) await flushed;
        while (this.#unacked() > UNACKED_LIMIT && !this.#signal.aborted) await this.#nextAck();
        return;
      }
      case "stdin_ack":
        return sendMessage(this.#socket, { type: "stdin_ack", offset: output.offset });
      case "exit":
        return sendMessage(this.#socket, {
          type: "exit",
          exit: output.exit,
          stdout_bytes: output.stdoutBytes,
          stderr_bytes: output.stderrBytes,
        });
      default:
        assertNever(output, "exec output");
    }
  }

  async #send(frame: Uint8Array): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#socket.send(frame, () => resolve()); // its error is the close event's
    });
  }

  #unacked(): number {
    return (
      this.#sent.stdout -
      Math.min(this.#acked.stdout, this.#sent.stdout) +
      this.#sent.stderr -
      Math.min(this.#acked.stderr, this.#sent.stderr)
    );
  }

  async #nextAck(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#wakeOnAck = resolve;
    });
  }

  /** The client's last acknowledgement lets the guest forget the output; a client that sends none is not waited for long. */
  async #lastAck(exit: { readonly stdoutBytes: number; readonly stderrBytes: number }): Promise<void> {
    let isOver = false;
    const cancel = this.#clock.schedule(LAST_ACK_PATIENCE_MS, () => {
      isOver = true;
      this.#wakeOnAck?.();
    });
    while (!isOver && !this.#signal.aborted && (this.#acked.stdout < exit.stdoutBytes || this.#acked.stderr < exit.stderrBytes))
      await this.#nextAck();
    cancel();
  }

  #receive(data: Buffer, isBinary: boolean): void {
    const attachment = this.#attachment;
    if (attachment === undefined) {
      if (this.#early.length >= 64) return this.#fail(new PlatformError("REQUEST_INVALID", "Too many messages before the attachment"));
      this.#early.push(() => this.#receive(data, isBinary));
      return;
    }
    try {
      if (isBinary) this.#receiveStdin(attachment, data);
      else this.#receiveControl(attachment, decodeClientMessage(data.toString("utf8")));
    } catch (error) {
      this.#fail(error);
    }
  }

  #receiveStdin(attachment: ExecAttachment, data: Buffer): void {
    const { offset, bytes } = decodeStdinFrame(data);
    this.#enqueueInput(bytes.length, async () => await attachment.writeStdin(offset, bytes));
  }

  #receiveControl(attachment: ExecAttachment, message: ExecClientMessage): void {
    switch (message.type) {
      case "ack":
        this.#acked.stdout = Math.max(this.#acked.stdout, message.stdout);
        this.#acked.stderr = Math.max(this.#acked.stderr, message.stderr);
        attachment.ack({ stdout: message.stdout, stderr: message.stderr });
        this.#wakeOnAck?.();
        return;
      case "stdin_end":
        return this.#enqueueInput(0, async () => await attachment.endStdin(message.offset));
      case "resize":
        attachment.resize({ rows: message.rows, cols: message.cols }).catch(this.#fail);
        return;
      case "signal":
        attachment.signal(message.signal).catch(this.#fail);
        return;
      default:
        assertNever(message, "client message");
    }
  }

  /** Input keeps its order; its bound is `STDIN_LIMIT`. */
  #enqueueInput(byteCount: number, task: () => Promise<void>): void {
    const cost = byteCount + INPUT_COST;
    this.#stdinPending += cost;
    if (this.#stdinPending > STDIN_LIMIT)
      throw new PlatformError("REQUEST_INVALID", "Standard input was sent faster than it is acknowledged");
    this.#stdin = this.#stdin.then(task).then(() => void (this.#stdinPending -= cost));
    this.#stdin.catch(this.#fail);
  }

  #schedulePing(): void {
    this.#cancelPing = this.#clock.schedule(PING_EVERY_MS, () => {
      if (!this.#isAlive) return this.#socket.terminate();
      this.#isAlive = false;
      this.#socket.ping();
      this.#schedulePing();
    });
  }
}

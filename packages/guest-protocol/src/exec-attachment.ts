/**
 * One consumer of an exec's output and source of its input, across connections.
 *
 *     attached ──connection lost──► waiting for the next ──attach at our offsets──► attached
 *        │                                │
 *        ├──exit read──► over             └──guest without these bytes──► failed (EXEC_OUTPUT_LOST)
 *        └──detach(), signal, another consumer──► over or failed
 *
 * Output bytes are numbered: after a break we ask again from the first byte we have not handed out, so nothing is lost
 * or repeated. What was handed out stays in the guest until `ack`, for a consumer that may have to begin again further
 * back. Input is numbered too: what the guest has not confirmed is kept here (bounded) and sent again.
 */
import { isPlatformError, PlatformError } from "@fluxvm/core";
import { parseExecStatus, parseExit, type ExecExitStatus, type ExecStatus } from "./exec-types.ts";
import type { GuestCaller, GuestRequest, OpenCall } from "./guest-caller.ts";
import { MAX_STDIN_BYTES } from "./limits.ts";
import { encodeJson, encodeOffset, MESSAGE_KIND, splitOffset, violation, type Message } from "./message.ts";
import { parseReply } from "./reply.ts";

export type ExecOutput =
  | { readonly kind: "data"; readonly stream: "stdout" | "stderr"; readonly offset: number; readonly data: Uint8Array }
  /** The guest has received all input before `offset`. */
  | { readonly kind: "stdin_ack"; readonly offset: number }
  | { readonly kind: "exit"; readonly exit: ExecExitStatus; readonly stdoutBytes: number; readonly stderrBytes: number };

const STDIN_PIECE_BYTES = 32 * 1024;

export interface AttachmentOptions {
  readonly caller: GuestCaller;
  readonly execId: string;
  readonly signal: AbortSignal;
  readonly first: OpenCall;
  /** Where the output was asked from; `undefined` from the oldest byte there is. */
  readonly offsets: { readonly stdout?: number | undefined; readonly stderr?: number | undefined };
}

export class ExecAttachment {
  readonly execId: string;
  /** The exec as it was when attached. */
  readonly status: ExecStatus;
  readonly #caller: GuestCaller;
  readonly #signal: AbortSignal;
  readonly #next: { stdout: number; stderr: number };
  readonly #stdin = new StdinLog();
  #call: OpenCall | undefined;
  #detached = false;
  #exited = false;

  constructor(options: AttachmentOptions) {
    this.execId = options.execId;
    this.#caller = options.caller;
    this.#signal = options.signal;
    this.#call = options.first;
    this.status = parseExecStatus(options.first.reply.object("exec"));
    this.#next = { stdout: options.offsets.stdout ?? this.status.stdout.start, stderr: options.offsets.stderr ?? this.status.stderr.start };
    this.#stdin.reset(this.status.stdinOffset);
  }

  /** Input bytes the guest had received when we attached: where ours go on. */
  get stdinOffset(): number {
    return this.status.stdinOffset;
  }

  /**
   * Output as it comes, then the exit; ends after that. Iterate once. Leaving the loop early detaches.
   * @throws PlatformError `EXEC_OUTPUT_LOST`, `EXEC_NOT_FOUND`, `EXEC_TAKEN_OVER`, the signal's reason
   */
  get output(): AsyncIterable<ExecOutput> {
    return this.#read();
  }

  /** The consumer has kept everything before these offsets: the guest may forget it. Cheap, best effort, may be repeated. */
  ack(offsets: { readonly stdout: number; readonly stderr: number }): void {
    this.#post(encodeJson({ ack: offsets }));
  }

  /**
   * Input bytes numbered from `offset`, which is at most the end of what was given so far: bytes known already are
   * passed over. Resolves when there is room for more.
   */
  async writeStdin(offset: number, data: Uint8Array): Promise<void> {
    for (const piece of this.#stdin.add(offset, data)) this.#post(encodeOffset(MESSAGE_KIND.stdin, piece.offset, piece.bytes));
    await this.#stdin.room(this.#signal);
  }

  /** There is no input after `offset` bytes. */
  async endStdin(offset: number): Promise<void> {
    this.#stdin.end(offset);
    this.#post(encodeJson({ stdinEnd: offset }));
    await Promise.resolve();
  }

  /** Leaves the exec as it is. Its unacknowledged output stays in the guest. */
  detach(): void {
    if (this.#detached) return;
    this.#detached = true;
    this.#call?.release();
    this.#call?.stream.end();
    if (!this.#exited) this.#call?.stream.reset(new PlatformError("REQUEST_CANCELLED", "The consumer detached"));
    this.#stdin.close();
  }

  async *#read(): AsyncGenerator<ExecOutput, void, undefined> {
    try {
      while (!this.#exited && !this.#detached) {
        const call = this.#call ?? (await this.#attachAgain());
        try {
          const message = await call.messages.next();
          if (message === undefined) throw new PlatformError("AGENT_UNREACHABLE", "The guest agent ended the stream");
          const output = this.#onMessage(message);
          if (output !== undefined) yield output;
        } catch (error) {
          if (this.#detached) return;
          this.#leave(call, error);
        }
      }
    } finally {
      this.detach();
    }
  }

  /** The call is over. @throws the error unless the next connection may mend it. */
  #leave(call: OpenCall, error: unknown): void {
    call.release();
    call.stream.end(); // else the guest, which has ended its side, waits for ours for ever
    this.#call = undefined;
    this.#signal.throwIfAborted();
    this.#caller.onFailure(call.channel, call.stream, error);
    if (!isPlatformError(error, "AGENT_UNREACHABLE") || this.#caller.link.state === "closed") throw error;
  }

  async #attachAgain(): Promise<OpenCall> {
    const request: GuestRequest = {
      op: "exec.attach",
      execId: this.execId,
      stdoutOffset: this.#next.stdout,
      stderrOffset: this.#next.stderr,
    };
    for (;;) {
      try {
        const call = await this.#caller.open(request, { signal: this.#signal });
        this.#call = call;
        const status = parseExecStatus(call.reply.object("exec"));
        for (const piece of this.#stdin.resume(status.stdinOffset)) this.#post(encodeOffset(MESSAGE_KIND.stdin, piece.offset, piece.bytes));
        if (this.#stdin.endOffset !== undefined) this.#post(encodeJson({ stdinEnd: this.#stdin.endOffset }));
        return call;
      } catch (error) {
        this.#signal.throwIfAborted();
        if (!isPlatformError(error, "AGENT_UNREACHABLE") || this.#caller.link.state === "closed") throw error;
      }
    }
  }

  #onMessage(message: Message): ExecOutput | undefined {
    switch (message.kind) {
      case MESSAGE_KIND.stdout:
        return this.#onOutput("stdout", message);
      case MESSAGE_KIND.stderr:
        return this.#onOutput("stderr", message);
      default:
        return this.#onJson(message);
    }
  }

  #onOutput(stream: "stdout" | "stderr", message: Message): ExecOutput {
    const { offset, bytes } = splitOffset(message.body);
    if (offset !== this.#next[stream]) throw violation("output that is out of order");
    this.#next[stream] += bytes.length;
    return { kind: "data", stream, offset, data: bytes };
  }

  #onJson(message: Message): ExecOutput | undefined {
    const reply = parseReply(message);
    if (reply.has("stdinOffset")) {
      const offset = reply.count("stdinOffset");
      if (!this.#stdin.confirm(offset)) throw violation("input confirmed that was never sent");
      return { kind: "stdin_ack", offset };
    }
    if (!reply.has("exit")) return undefined;
    const [stdoutBytes, stderrBytes] = [reply.count("stdoutEnd"), reply.count("stderrEnd")];
    if (stdoutBytes !== this.#next.stdout || stderrBytes !== this.#next.stderr) throw violation("an exit before all output");
    this.#exited = true;
    return { kind: "exit", exit: parseExit(reply.object("exit")), stdoutBytes, stderrBytes };
  }

  /** Sends when there is a connection. What matters is sent again after the next attach. */
  #post(bytes: Uint8Array): void {
    this.#call?.stream.write(bytes).catch(() => undefined); // the reader sees the failure
  }
}

/** Input given and not confirmed by the guest. */
class StdinLog {
  #pieces: { readonly offset: number; readonly bytes: Uint8Array }[] = [];
  #confirmed = 0;
  #end = 0;
  #ended: number | undefined;
  #closed = false;
  #waiting: (() => void)[] = [];

  get endOffset(): number | undefined {
    return this.#ended;
  }

  reset(offset: number): void {
    this.#confirmed = offset;
    this.#end = offset;
  }

  add(offset: number, data: Uint8Array): { readonly offset: number; readonly bytes: Uint8Array }[] {
    if (offset > this.#end) throw new PlatformError("REQUEST_INVALID", `Input goes on at byte ${this.#end}, not at ${offset}`);
    const fresh = data.subarray(Math.min(this.#end - offset, data.length));
    if (fresh.length === 0) return [];
    if (this.#ended !== undefined) throw new PlatformError("REQUEST_INVALID", "Input was already ended");
    const added = [];
    for (let at = 0; at < fresh.length; at += STDIN_PIECE_BYTES) {
      const bytes = Uint8Array.from(fresh.subarray(at, at + STDIN_PIECE_BYTES)); // the caller may reuse its buffer
      added.push({ offset: this.#end, bytes });
      this.#end += bytes.length;
    }
    this.#pieces.push(...added);
    return added;
  }

  end(offset: number): void {
    if (offset !== this.#end) throw new PlatformError("REQUEST_INVALID", `Input ends at byte ${this.#end}, not at ${offset}`);
    this.#ended = offset;
  }

  /** @returns false when more is confirmed than was sent */
  confirm(offset: number): boolean {
    if (offset > this.#end) return false;
    this.#confirmed = Math.max(this.#confirmed, offset);
    this.#pieces = this.#pieces.filter((p) => p.offset + p.bytes.length > this.#confirmed);
    if (this.#hasRoom()) for (const go of this.#waiting.splice(0)) go();
    return true;
  }

  /** What to send again to a guest that has received `offset` bytes. */
  resume(offset: number): readonly { readonly offset: number; readonly bytes: Uint8Array }[] {
    if (offset < this.#confirmed) {
      throw new PlatformError(
        "EXEC_OUTPUT_LOST",
        `The guest was set back: it has ${offset} bytes of input, and ${this.#confirmed} were confirmed before`,
      );
    }
    if (!this.confirm(offset)) {
      // Somebody else attached in between and gave more.
      this.#pieces = [];
      this.#confirmed = offset;
      this.#end = offset;
    }
    return this.#pieces;
  }

  async room(signal: AbortSignal): Promise<void> {
    while (!this.#hasRoom()) {
      await new Promise<void>((resolve, reject) => {
        const onAbort = (): void => reject(signal.reason as Error); // reasons are errors here
        if (signal.aborted) return onAbort();
        signal.addEventListener("abort", onAbort, { once: true });
        this.#waiting.push(() => {
          signal.removeEventListener("abort", onAbort);
          resolve();
        });
      });
    }
  }

  close(): void {
    this.#closed = true;
    for (const go of this.#waiting.splice(0)) go();
  }

  #hasRoom(): boolean {
    return this.#closed || this.#end - this.#confirmed < MAX_STDIN_BYTES;
  }
}

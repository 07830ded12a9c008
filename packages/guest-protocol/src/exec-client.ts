/** Execs in one guest. */
import type { CallOptions } from "@fluxvm/core";
import { ExecAttachment } from "./exec-attachment.ts";
import { parseExecList, parseExecStatus, type ExecCommand, type ExecStatus } from "./exec-types.ts";
import { MAX_EXECS } from "./limits.ts";
import { parseReply } from "./reply.ts";
import type { GuestCaller, GuestRequest } from "./guest-caller.ts";

export interface AttachOffsets {
  /** Everything before counts as acknowledged. Default: the oldest byte there is. */
  readonly stdout?: number | undefined;
  readonly stderr?: number | undefined;
}

export class ExecClient {
  readonly #caller: GuestCaller;

  constructor(caller: GuestCaller) {
    this.#caller = caller;
  }

  /** Starts a command. The same `execId` again gives the same exec. @throws PlatformError `EXEC_START_FAILED`, `EXEC_LIMIT` */
  async start(command: ExecCommand, options: CallOptions): Promise<ExecStatus> {
    const reply = await this.#caller.ask({ op: "exec.start", ...command }, options);
    return parseExecStatus(reply.object("exec"));
  }

  /** Starts and attaches in one round trip. */
  async startAttached(command: ExecCommand, options: CallOptions): Promise<ExecAttachment> {
    return await this.#attach({ op: "exec.start", ...command, attach: {} }, command.execId, {}, options);
  }

  /** Becomes the exec's one consumer. @throws PlatformError `EXEC_NOT_FOUND`, `EXEC_OUTPUT_LOST` */
  async attach(execId: string, offsets: AttachOffsets, options: CallOptions): Promise<ExecAttachment> {
    const request = { op: "exec.attach", execId, stdoutOffset: offsets.stdout, stderrOffset: offsets.stderr };
    return await this.#attach(request, execId, offsets, options);
  }

  /** @throws PlatformError `EXEC_NOT_FOUND` */
  async get(execId: string, options: CallOptions): Promise<ExecStatus> {
    return parseExecStatus((await this.#caller.ask({ op: "exec.get", execId }, options)).object("exec"));
  }

  /** All execs; of very long arguments only the beginning. */
  async list(options: CallOptions): Promise<readonly ExecStatus[]> {
    const call = await this.#caller.openRepeatable({ op: "exec.list" }, options);
    call.stream.end();
    try {
      const execs = [...parseExecList(call.reply)];
      for (let reply = call.reply; reply.flag("more") && execs.length <= MAX_EXECS;) {
        reply = parseReply(await call.messages.next());
        execs.push(...parseExecList(reply));
      }
      return execs;
    } catch (error) {
      throw this.#caller.onFailure(call.channel, call.stream, error);
    } finally {
      call.release();
    }
  }

  /** Resolves when the exec has ended and written its last byte. Its output must be consumed or fit into the guest's buffer. */
  async wait(execId: string, options: CallOptions): Promise<ExecStatus> {
    return parseExecStatus((await this.#caller.ask({ op: "exec.wait", execId }, options)).object("exec"));
  }

  /** To the exec's process group, unless `group` is false; SIGKILL always to the group. An ended exec is fine. */
  async signal(execId: string, signal: string, options: CallOptions & { readonly group?: boolean }): Promise<void> {
    await this.#caller.ask({ op: "exec.signal", execId, signal, group: options.group }, { signal: options.signal, repeatable: false });
  }

  async resize(execId: string, size: { readonly rows: number; readonly cols: number }, options: CallOptions): Promise<void> {
    await this.#caller.ask({ op: "exec.resize", execId, rows: size.rows, cols: size.cols }, options);
  }

  /** Kills the exec if it runs, and forgets it with its output. */
  async remove(execId: string, options: CallOptions): Promise<void> {
    await this.#caller.ask({ op: "exec.remove", execId }, { signal: options.signal, repeatable: false });
  }

  async #attach(request: GuestRequest, execId: string, offsets: AttachOffsets, options: CallOptions): Promise<ExecAttachment> {
    const first = await this.#caller.openRepeatable(request, options);
    return new ExecAttachment({ caller: this.#caller, execId, signal: options.signal, first, offsets });
  }
}

/** Guest agents as the engine knows them, over the client of `@fluxvm/guest-protocol`. Names and units change here, nothing else. */
import type { CreateExecRequest, ExecExit, ExecView, FileEvent, FileStat } from "@fluxvm/contracts";
import { newId, PlatformError, withDeadline, type CallOptions, type Clock, type Random } from "@fluxvm/core";
import type { ExecStream, ExecStreamOutput, GuestAgent, GuestAgentState, Guests } from "@fluxvm/engine";
import {
  createGuestClient,
  type ExecAttachment,
  type ExecCommand,
  type ExecExitStatus,
  type ExecStatus,
  type GuestAgent as GuestClient,
  type GuestFileEvent,
  type GuestFileStat,
} from "@fluxvm/guest-protocol";
import type { Logger } from "@fluxvm/telemetry";

const MAX_LISTED_FILES = 100_000;
const FORGET_TIMEOUT_MS = 10_000;

export interface GuestsOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
}

export function createGuests({ clock, random, logger }: GuestsOptions): Guests {
  return {
    connect({ vmId, endpoint, token }) {
      const client = createGuestClient({ endpoint, token, clock, random, logger: logger.child({ vmId }) });
      return new AdaptedAgent(client, { clock, random });
    },
  };
}

class AdaptedAgent implements GuestAgent {
  readonly #client: GuestClient;
  readonly #clock: Clock;
  readonly #random: Random;

  constructor(client: GuestClient, { clock, random }: { readonly clock: Clock; readonly random: Random }) {
    this.#client = client;
    this.#clock = clock;
    this.#random = random;
  }

  get state(): GuestAgentState {
    return this.#client.state;
  }

  get version(): string | undefined {
    return this.#client.guest?.agentVersion;
  }

  subscribe(listener: (state: GuestAgentState) => void): () => void {
    return this.#client.subscribe(listener);
  }

  async waitReady(options: CallOptions): Promise<void> {
    await this.#client.waitReady(options);
  }

  async ping(options: CallOptions): Promise<{ readonly rtt_ms: number; readonly version: string }> {
    const rttMs = await this.#client.ping(options);
    return { rtt_ms: Math.round(rttMs * 1000) / 1000, version: this.version ?? "" };
  }

  async setClock(request: { readonly wallMs: number }, options: CallOptions): Promise<void> {
    await this.#client.setClock({ wallMs: Math.round(request.wallMs) }, options);
  }

  async shutdown(options: CallOptions): Promise<void> {
    await this.#client.shutdown({ mode: "poweroff" }, options);
  }

  async createExec(request: CreateExecRequest, options: CallOptions): Promise<ExecView> {
    const command = toExecCommand(newId("exec", this.#random), request);
    try {
      return toExecView(await this.#client.exec.start(command, options));
    } catch (error) {
      // Nobody will learn this exec's id, and it may run all the same. Never rejects, and the caller need not wait for it.
      if (options.signal.aborted) void this.#forgetExec(command.execId);
      throw error;
    }
  }

  async #forgetExec(execId: string): Promise<void> {
    const deadline = { clock: this.#clock, timeoutMs: FORGET_TIMEOUT_MS, what: "removing an exec nobody waits for" };
    await withDeadline(deadline, async (signal) => await this.#client.exec.remove(execId, { signal })).catch(() => undefined);
  }

  async listExecs(options: CallOptions): Promise<readonly ExecView[]> {
    return (await this.#client.exec.list(options)).map(toExecView);
  }

  async getExec(execId: string, options: CallOptions): Promise<ExecView> {
    return toExecView(await this.#client.exec.get(execId, options));
  }

  async attachExec(
    execId: string,
    offsets: { readonly stdout: number; readonly stderr: number },
    options: CallOptions,
  ): Promise<ExecStream> {
    return toExecStream(this.#client, await this.#client.exec.attach(execId, offsets, options), options);
  }

  async signalExec(execId: string, signal: string, options: CallOptions): Promise<void> {
    await this.#client.exec.signal(execId, toSignalName(signal), options);
  }

  async removeExec(execId: string, options: CallOptions): Promise<void> {
    await this.#client.exec.remove(execId, options);
  }

  async readFile(
    path: string,
    range: { readonly offset?: number | undefined; readonly length?: number | undefined },
    options: CallOptions,
  ): Promise<{ readonly stat: FileStat; readonly content: AsyncIterable<Uint8Array> }> {
    const { stat, content } = await this.#client.files.read(path, range, options);
    return { stat: toFileStat(stat), content };
  }

  async writeFile(
    path: string,
    content: AsyncIterable<Uint8Array>,
    attributes: Parameters<GuestAgent["writeFile"]>[2],
    options: CallOptions,
  ): Promise<FileStat> {
    return toFileStat(await this.#client.files.write(path, content, attributes, options));
  }

  async statFile(path: string, options: CallOptions): Promise<FileStat> {
    return toFileStat(await this.#client.files.stat(path, options));
  }

  async listFiles(path: string, options: CallOptions): Promise<readonly FileStat[]> {
    const files: FileStat[] = [];
    for await (const batch of this.#client.files.list(path, options)) {
      files.push(...batch.map(toFileStat));
      if (files.length > MAX_LISTED_FILES)
        throw new PlatformError("GUEST_FILE_INVALID", `${path} holds more than ${MAX_LISTED_FILES} entries`);
    }
    return files.toSorted((a, b) => (a.path < b.path ? -1 : 1));
  }

  async makeDirectory(
    path: string,
    request: { readonly parents: boolean; readonly mode?: number | undefined },
    options: CallOptions,
  ): Promise<void> {
    await this.#client.files.makeDirectory(path, request, options);
  }

  async renameFile(from: string, to: string, options: CallOptions): Promise<void> {
    await this.#client.files.rename(from, to, options);
  }

  async removeFile(path: string, request: { readonly recursive: boolean }, options: CallOptions): Promise<void> {
    await this.#client.files.remove(path, request, options);
  }

  async *watchFiles(path: string, options: CallOptions): AsyncGenerator<FileEvent, void, undefined> {
    for await (const events of this.#client.files.watch(path, options)) {
      for (const event of events) {
        const translated = toFileEvent(event);
        if (translated !== undefined) yield translated;
      }
    }
  }

  async close(): Promise<void> {
    await this.#client.close();
  }
}

function toExecCommand(execId: string, request: CreateExecRequest): ExecCommand {
  return {
    execId,
    argv: request.command,
    env: request.env === undefined ? undefined : Object.entries(request.env),
    cwd: request.working_dir,
    user: request.user,
    tty: request.tty,
    timeoutMs: request.timeout_seconds === undefined ? undefined : Math.ceil(request.timeout_seconds * 1000),
    stdin: request.stdin,
    inheritImageEnv: true,
  };
}

function toExecStream(client: GuestClient, attachment: ExecAttachment, options: CallOptions): ExecStream {
  return {
    stdinOffset: attachment.stdinOffset,
    output: translateOutput(attachment),
    ack: (offsets) => attachment.ack(offsets),
    writeStdin: async (offset, data) => await attachment.writeStdin(offset, data),
    endStdin: async (offset) => await attachment.endStdin(offset),
    resize: async (size) => await client.exec.resize(attachment.execId, size, options),
    signal: async (name) => await client.exec.signal(attachment.execId, toSignalName(name), options),
    detach: () => attachment.detach(),
  };
}

async function* translateOutput(attachment: ExecAttachment): AsyncGenerator<ExecStreamOutput, void, undefined> {
  for await (const output of attachment.output) yield output.kind === "exit" ? { ...output, exit: toExit(output.exit) } : output;
}

/** `TERM` and `SIGTERM` both are. Numbers pass as they are. */
function toSignalName(name: string): string {
  return /^\d+$/.test(name) || name.startsWith("SIG") ? name : `SIG${name}`;
}

function toExit(exit: ExecExitStatus): ExecExit {
  return {
    ...(exit.code === undefined ? {} : { code: exit.code }),
    ...(exit.signal === undefined ? {} : { signal: exit.signal }),
    timed_out: exit.timedOut,
  };
}

function toExecView(status: ExecStatus): ExecView {
  return {
    id: status.execId,
    command: [...status.argv],
    pid: status.pid,
    state: status.state,
    ...(status.exit === undefined ? {} : { exit: toExit(status.exit) }),
    tty: status.tty,
    stdout_acked: status.stdout.start,
    stdout_bytes: status.stdout.end,
    stderr_acked: status.stderr.start,
    stderr_bytes: status.stderr.end,
  };
}

function toFileStat(stat: GuestFileStat): FileStat {
  const { path, size, mode, uid, gid, target } = stat;
  const type = stat.type === "file" || stat.type === "directory" || stat.type === "symlink" ? stat.type : "other";
  const modified = new Date(Math.min(8.64e15, Math.max(-8.64e15, stat.mtimeMs))); // what a date can hold
  return { path, type, size, mode, uid, gid, modified_at: modified.toISOString(), ...(target === undefined ? {} : { target }) };
}

function toFileEvent({ kind, name }: GuestFileEvent): FileEvent | undefined {
  switch (kind) {
    case "closed":
      return undefined; // every write before it was told as `modified`
    case "self_removed":
      return { type: "removed", name: "" };
    case "self_moved":
      return { type: "moved_from", name: "" };
    default:
      return { type: kind, name };
  }
}

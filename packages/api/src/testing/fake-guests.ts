/** Guests of the fake platform: execs that end with their VM, files that outlive a restart. */
import type { AgentExecRequest, AgentExecResult, CreateExecRequest, ExecExit, ExecView, FileEvent, FileStat } from "@fluxvm/contracts";
import { PlatformError, type CallOptions, type Clock } from "@fluxvm/core";
import type { ExecAttachment, GuestOperations } from "../platform.ts";
import { FakeExec } from "./fake-exec.ts";
import { FakeFiles } from "./fake-files.ts";
import type { FakeGuestPower } from "./fake-vms.ts";

const RUN_LIMIT_BYTES = 1_048_576;

interface Guest {
  readonly files: FakeFiles;
  readonly execs: Map<string, FakeExec>;
}

export class FakeGuests implements GuestOperations, FakeGuestPower {
  readonly #clock: Clock;
  readonly #guests = new Map<string, Guest>();
  readonly #requireGuest: (reference: string) => string;
  #count = 0;

  constructor(clock: Clock, vms: { readonly requireGuest: (reference: string) => string }) {
    this.#clock = clock;
    this.#requireGuest = vms.requireGuest;
  }

  boot(vmId: string, workload: readonly string[]): void {
    const files = this.#guests.get(vmId)?.files ?? new FakeFiles(this.#clock);
    const guest: Guest = { files, execs: new Map() };
    this.#guests.set(vmId, guest);
    if (workload.length > 0)
      guest.execs.set("workload", new FakeExec("workload", { command: [...workload], stdin: true }, { clock: this.#clock, files }));
  }

  shutDown(vmId: string): void {
    for (const exec of this.#guests.get(vmId)?.execs.values() ?? []) exec.signal("SIGKILL");
    this.#guests.get(vmId)?.execs.clear();
  }

  async ping(reference: string): Promise<{ readonly rtt_ms: number; readonly version: string }> {
    this.#guest(reference);
    return { rtt_ms: 0.5, version: "0.0.0-fake" };
  }

  async run(reference: string, request: AgentExecRequest, options: CallOptions): Promise<AgentExecResult> {
    const { command, stdin, ...rest } = request;
    const startedMs = this.#clock.bootMs();
    const view = await this.createExec(reference, {
      ...rest,
      command: typeof command === "string" ? ["sh", "-c", command] : command,
      stdin: stdin !== undefined,
    });
    const attachment = await this.attachExec(reference, view.id, { stdout: 0, stderr: 0 }, options);
    if (stdin !== undefined) {
      await attachment.writeStdin(0, Buffer.from(stdin));
      await attachment.endStdin(Buffer.byteLength(stdin));
    }
    const collected = await collect(attachment);
    await this.removeExec(reference, view.id);
    return { ...collected, duration_ms: this.#clock.bootMs() - startedMs };
  }

  async createExec(reference: string, request: CreateExecRequest): Promise<ExecView> {
    const { execs, files } = this.#guest(reference);
    if (execs.size >= 64) throw new PlatformError("EXEC_LIMIT", "Too many execs in this VM");
    this.#count += 1;
    const exec = new FakeExec(`exec-${String(this.#count).padStart(16, "0")}`, request, { clock: this.#clock, files });
    execs.set(exec.id, exec);
    return exec.view;
  }

  async listExecs(reference: string): Promise<readonly ExecView[]> {
    return [...this.#guest(reference).execs.values()].map((e) => e.view);
  }

  async getExec(reference: string, execId: string): Promise<ExecView> {
    return this.#exec(reference, execId).view;
  }

  async attachExec(
    reference: string,
    execId: string,
    offsets: { readonly stdout: number; readonly stderr: number },
    options: CallOptions,
  ): Promise<ExecAttachment> {
    return this.#exec(reference, execId).attach(offsets, options.signal);
  }

  async signalExec(reference: string, execId: string, signal: string): Promise<void> {
    this.#exec(reference, execId).signal(signal);
  }

  async removeExec(reference: string, execId: string): Promise<void> {
    this.#exec(reference, execId).signal("SIGKILL");
    this.#guest(reference).execs.delete(execId);
  }

  async readFile(
    reference: string,
    path: string,
    range: Parameters<GuestOperations["readFile"]>[2],
  ): ReturnType<GuestOperations["readFile"]> {
    return this.#guest(reference).files.read(path, range);
  }

  async writeFile(
    reference: string,
    path: string,
    content: AsyncIterable<Uint8Array>,
    attributes: Parameters<GuestOperations["writeFile"]>[3],
  ): Promise<FileStat> {
    return await this.#guest(reference).files.write(path, content, attributes);
  }

  async statFile(reference: string, path: string): Promise<FileStat> {
    return this.#guest(reference).files.stat(path);
  }

  async listFiles(reference: string, path: string): Promise<readonly FileStat[]> {
    return this.#guest(reference).files.list(path);
  }

  async makeDirectory(
    reference: string,
    path: string,
    request: { readonly parents: boolean; readonly mode?: number | undefined },
  ): Promise<void> {
    this.#guest(reference).files.makeDirectory(path, request);
  }

  async renameFile(reference: string, from: string, to: string): Promise<void> {
    this.#guest(reference).files.rename(from, to);
  }

  async removeFile(reference: string, path: string, request: { readonly recursive: boolean }): Promise<void> {
    this.#guest(reference).files.remove(path, request.recursive);
  }

  async *watchFiles(reference: string, path: string, options: CallOptions): AsyncGenerator<FileEvent, void, undefined> {
    yield* this.#guest(reference).files.watch(path, options.signal);
  }

  #guest(reference: string): Guest {
    const id = this.#requireGuest(reference);
    const guest = this.#guests.get(id);
    if (guest === undefined) throw new PlatformError("AGENT_UNREACHABLE", "The guest agent does not answer", { retryAfterMs: 1000 });
    return guest;
  }

  #exec(reference: string, execId: string): FakeExec {
    const exec = this.#guest(reference).execs.get(execId);
    if (exec === undefined) throw new PlatformError("EXEC_NOT_FOUND", `There is no exec ${JSON.stringify(execId)}`);
    return exec;
  }
}

async function collect(attachment: ExecAttachment): Promise<Omit<AgentExecResult, "duration_ms">> {
  const kept = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  const seen = { stdout: 0, stderr: 0 };
  let exit: ExecExit = { timed_out: false };
  for await (const output of attachment.output) {
    if (output.kind === "exit") exit = output.exit;
    if (output.kind !== "data") continue;
    const room = Math.max(0, RUN_LIMIT_BYTES - seen[output.stream]);
    kept[output.stream].push(output.data.subarray(0, room));
    seen[output.stream] = output.offset + output.data.length;
    attachment.ack(seen);
  }
  return {
    stdout: Buffer.concat(kept.stdout).toString("utf8"),
    stderr: Buffer.concat(kept.stderr).toString("utf8"),
    exit,
    stdout_truncated: seen.stdout > RUN_LIMIT_BYTES,
    stderr_truncated: seen.stderr > RUN_LIMIT_BYTES,
  };
}

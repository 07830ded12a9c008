/** Calls into guests: finds the VM's agent, waits a moment for it if it is just coming up, and hands the call on. */
import type { AgentExecRequest, AgentExecResult, CreateExecRequest, ExecView, FileEvent, FileStat } from "@fluxvm/contracts";
import { withDeadline, type CallOptions, type Clock } from "@fluxvm/core";
import type { ExecStream, FileAttributes, GuestAgent } from "@fluxvm/engine";
import type { Fleet } from "./fleet.ts";
import { runCommand } from "./run-command.ts";

/** How long a call waits for an agent that does not answer yet. */
const AGENT_WAIT_MS = 10_000;

export class GuestOperations {
  readonly #fleet: Fleet;
  readonly #clock: Clock;

  constructor(fleet: Fleet, clock: Clock) {
    this.#fleet = fleet;
    this.#clock = clock;
  }

  async ping(reference: string, options: CallOptions): Promise<{ readonly rtt_ms: number; readonly version: string }> {
    return await (await this.#agent(reference, options)).ping(options);
  }

  async run(reference: string, request: AgentExecRequest, options: CallOptions): Promise<AgentExecResult> {
    return await runCommand(await this.#agent(reference, options), request, { ...options, clock: this.#clock });
  }

  async createExec(reference: string, request: CreateExecRequest, options: CallOptions): Promise<ExecView> {
    return await (await this.#agent(reference, options)).createExec(request, options);
  }

  async listExecs(reference: string, options: CallOptions): Promise<readonly ExecView[]> {
    return await (await this.#agent(reference, options)).listExecs(options);
  }

  async getExec(reference: string, execId: string, options: CallOptions): Promise<ExecView> {
    return await (await this.#agent(reference, options)).getExec(execId, options);
  }

  async attachExec(
    reference: string,
    execId: string,
    offsets: { readonly stdout: number; readonly stderr: number },
    options: CallOptions,
  ): Promise<ExecStream> {
    return await (await this.#agent(reference, options)).attachExec(execId, offsets, options);
  }

  async signalExec(reference: string, execId: string, signal: string, options: CallOptions): Promise<void> {
    await (await this.#agent(reference, options)).signalExec(execId, signal, options);
  }

  async removeExec(reference: string, execId: string, options: CallOptions): Promise<void> {
    await (await this.#agent(reference, options)).removeExec(execId, options);
  }

  async readFile(
    reference: string,
    path: string,
    range: { readonly offset?: number | undefined; readonly length?: number | undefined },
    options: CallOptions,
  ): Promise<{ readonly stat: FileStat; readonly content: AsyncIterable<Uint8Array> }> {
    return await (await this.#agent(reference, options)).readFile(path, range, options);
  }

  async writeFile(
    reference: string,
    path: string,
    content: AsyncIterable<Uint8Array>,
    attributes: FileAttributes,
    options: CallOptions,
  ): Promise<FileStat> {
    return await (await this.#agent(reference, options)).writeFile(path, content, attributes, options);
  }

  async statFile(reference: string, path: string, options: CallOptions): Promise<FileStat> {
    return await (await this.#agent(reference, options)).statFile(path, options);
  }

  async listFiles(reference: string, path: string, options: CallOptions): Promise<readonly FileStat[]> {
    return await (await this.#agent(reference, options)).listFiles(path, options);
  }

  async makeDirectory(
    reference: string,
    path: string,
    request: { readonly parents: boolean; readonly mode?: number | undefined },
    options: CallOptions,
  ): Promise<void> {
    await (await this.#agent(reference, options)).makeDirectory(path, request, options);
  }

  async renameFile(reference: string, from: string, to: string, options: CallOptions): Promise<void> {
    await (await this.#agent(reference, options)).renameFile(from, to, options);
  }

  async removeFile(reference: string, path: string, request: { readonly recursive: boolean }, options: CallOptions): Promise<void> {
    await (await this.#agent(reference, options)).removeFile(path, request, options);
  }

  async *watchFiles(reference: string, path: string, options: CallOptions): AsyncGenerator<FileEvent> {
    yield* (await this.#agent(reference, options)).watchFiles(path, options);
  }

  /** @throws PlatformError `VM_NOT_FOUND`, `AGENT_DISABLED`, `VM_NOT_RUNNING`, `AGENT_UNREACHABLE`. */
  async #agent(reference: string, options: CallOptions): Promise<GuestAgent> {
    const driver = this.#fleet.get(reference);
    const agent = driver.requireGuest();
    if (agent.state === "ready") return agent;
    const what = `waiting for the guest agent of VM "${driver.snapshot.record.name}"`;
    await withDeadline(
      { clock: this.#clock, timeoutMs: AGENT_WAIT_MS, signal: options.signal, code: "AGENT_UNREACHABLE", what },
      async (signal) => await agent.waitReady({ signal }),
    );
    return agent;
  }
}

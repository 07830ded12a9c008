/** Guest agents of the simulated machines: they answer once their guest has run for a while, and keep execs. */
import type { CreateExecRequest, ExecView, FileStat } from "@fluxvm/contracts";
import { PlatformError, type Clock } from "@fluxvm/core";
import type { ExecStream, ExecStreamOutput, GuestAgent, GuestAgentState } from "../guest-agent.ts";
import type { Guests } from "../ports.ts";
import type { SimulatedMachine } from "./simulated-backend.ts";
import type { HostState, Incarnation } from "./simulated-world.ts";

export function createSimulatedGuests(host: HostState, clock: Clock, life: Incarnation): Guests {
  return {
    connect: (target) => {
      const machine = [...host.machines.values()].find((m) => m.vmId === target.vmId);
      return new SimulatedAgent(machine, host, clock, life);
    },
  };
}

class SimulatedAgent implements GuestAgent {
  readonly #machine: SimulatedMachine | undefined;
  readonly #life: Incarnation;
  readonly #clock: Clock;
  readonly #listeners = new Set<(state: GuestAgentState) => void>();
  readonly #files = new Map<string, Uint8Array>();
  readonly #commands = new Map<string, readonly string[]>();
  #state: GuestAgentState = "connecting";
  #version: string | undefined;
  #execs = 0;

  constructor(machine: SimulatedMachine | undefined, host: HostState, clock: Clock, life: Incarnation) {
    this.#machine = machine;
    this.#life = life;
    this.#clock = clock;
    const { agentReadyMs } = host.guests;
    if (machine === undefined || agentReadyMs === "never") return;
    const upMs = clock.bootMs() - (machine.bootedAtMs ?? clock.bootMs());
    clock.schedule(Math.max(0, agentReadyMs - upMs), () => this.#answer());
    machine.onEnd(() => this.#change("lost"));
  }

  get state(): GuestAgentState {
    return this.#state;
  }

  get version(): string | undefined {
    return this.#version;
  }

  subscribe(listener: (state: GuestAgentState) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async waitReady({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    signal.throwIfAborted();
    if (this.#state === "ready") return;
    if (this.#state === "closed") throw new PlatformError("AGENT_UNREACHABLE", "closed");
    await new Promise<void>((resolve, reject) => {
      const stop = this.subscribe((state) => {
        if (state === "ready") resolve();
        else if (state === "closed") reject(new PlatformError("AGENT_UNREACHABLE", "closed"));
        else return;
        stop();
      });
      signal.addEventListener("abort", () => {
        stop();
        reject(signal.reason as Error); // reasons are errors here
      });
    });
  }

  async ping({ signal }: { readonly signal: AbortSignal }): Promise<{ rtt_ms: number; version: string }> {
    return await this.#call("ping", signal, () => ({ rtt_ms: 1, version: "sim" }));
  }

  async setClock(_request: { readonly wallMs: number }, { signal }: { readonly signal: AbortSignal }): Promise<void> {
    await this.#call("setClock", signal, (machine) => {
      machine.guestClockSetAtMs = this.#clock.bootMs();
    });
  }

  async shutdown({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    await this.#call("shutdown", signal, (machine) => machine.askToShutDown());
  }

  /** `false` exits 1, `missing` cannot be started, `sleep` runs on, `flood` writes 3 MiB; all else exits 0 and prints its arguments. */
  async createExec(request: CreateExecRequest, { signal }: { readonly signal: AbortSignal }): Promise<ExecView> {
    return await this.#call("createExec", signal, () => {
      if (request.command[0] === "missing") throw new PlatformError("EXEC_START_FAILED", "No such file: missing");
      this.#execs += 1;
      const id = `exec-${String(this.#execs).padStart(16, "0")}`;
      this.#commands.set(id, request.command);
      return makeExecView(id, request.command);
    });
  }

  async listExecs({ signal }: { readonly signal: AbortSignal }): Promise<readonly ExecView[]> {
    return await this.#call("listExecs", signal, () => []);
  }

  async getExec(execId: string, { signal }: { readonly signal: AbortSignal }): Promise<ExecView> {
    return await this.#call("getExec", signal, () => makeExecView(execId, ["true"]));
  }

  async attachExec(
    execId: string,
    _offsets: { readonly stdout: number; readonly stderr: number },
    { signal }: { readonly signal: AbortSignal },
  ): Promise<ExecStream> {
    return await this.#call("attachExec", signal, () => makeStream(this.#commands.get(execId) ?? []));
  }

  async signalExec(_execId: string, _signal: string, { signal }: { readonly signal: AbortSignal }): Promise<void> {
    await this.#call("signalExec", signal, () => undefined);
  }

  async removeExec(_execId: string, { signal }: { readonly signal: AbortSignal }): Promise<void> {
    await this.#call("removeExec", signal, () => undefined);
  }

  async readFile(
    path: string,
    _range: object,
    { signal }: { readonly signal: AbortSignal },
  ): Promise<{ stat: FileStat; content: AsyncIterable<Uint8Array> }> {
    return await this.#call("readFile", signal, () => {
      const content = this.#files.get(path);
      if (content === undefined) throw new PlatformError("GUEST_FILE_NOT_FOUND", `No such file: ${path}`);
      return { stat: makeStat(path, content.length), content: iterate([content]) };
    });
  }

  async writeFile(
    path: string,
    content: AsyncIterable<Uint8Array>,
    _attributes: object,
    { signal }: { readonly signal: AbortSignal },
  ): Promise<FileStat> {
    const parts: Uint8Array[] = [];
    for await (const part of content) parts.push(part);
    return await this.#call("writeFile", signal, () => {
      const whole = Buffer.concat(parts);
      this.#files.set(path, whole);
      return makeStat(path, whole.length);
    });
  }

  async statFile(path: string, { signal }: { readonly signal: AbortSignal }): Promise<FileStat> {
    return await this.#call("statFile", signal, () => makeStat(path, this.#files.get(path)?.length ?? 0));
  }

  async listFiles(_path: string, { signal }: { readonly signal: AbortSignal }): Promise<readonly FileStat[]> {
    return await this.#call("listFiles", signal, () => [...this.#files].map(([path, content]) => makeStat(path, content.length)));
  }

  async makeDirectory(_path: string, _request: object, { signal }: { readonly signal: AbortSignal }): Promise<void> {
    await this.#call("makeDirectory", signal, () => undefined);
  }

  async renameFile(_from: string, _to: string, { signal }: { readonly signal: AbortSignal }): Promise<void> {
    await this.#call("renameFile", signal, () => undefined);
  }

  async removeFile(path: string, _request: object, { signal }: { readonly signal: AbortSignal }): Promise<void> {
    await this.#call("removeFile", signal, () => void this.#files.delete(path));
  }

  watchFiles(): AsyncIterable<never> {
    return iterate([]);
  }

  async close(): Promise<void> {
    await Promise.resolve();
    this.#change("closed");
    this.#listeners.clear();
  }

  /** A guest that does not run does not answer. */
  async #call<T>(name: string, signal: AbortSignal, work: (machine: SimulatedMachine) => T): Promise<T> {
    return await this.#life.step(`agent.${name}`, signal, () => {
      const machine = this.#machine;
      if (this.#state !== "ready" || machine === undefined || machine.status !== "running")
        throw new PlatformError("AGENT_UNREACHABLE", "The guest does not answer");
      return work(machine);
    });
  }

  #answer(): void {
    if (this.#life.isDead || this.#machine?.exit !== undefined) return;
    this.#version = "sim";
    this.#change("ready");
  }

  #change(state: GuestAgentState): void {
    if (this.#state === "closed" || this.#state === state) return;
    this.#state = state;
    for (const listener of this.#listeners) listener(state);
  }
}

function makeExecView(id: string, command: readonly string[]): ExecView {
  return {
    id,
    command: [...command],
    pid: 7,
    state: "running",
    tty: false,
    stdout_acked: 0,
    stdout_bytes: 0,
    stderr_acked: 0,
    stderr_bytes: 0,
  };
}

function makeStream(command: readonly string[]): ExecStream {
  const text = new TextEncoder().encode(`${command.slice(1).join(" ")}\n`);
  const stdout = command[0] === "flood" ? Array.from({ length: 48 }, () => new Uint8Array(65_536).fill(120)) : [text];
  const total = stdout.reduce((sum, chunk) => sum + chunk.length, 0);
  const output = async function* (): AsyncGenerator<ExecStreamOutput> {
    let offset = 0;
    for (const data of stdout) {
      yield { kind: "data", stream: "stdout", offset, data };
      offset += data.length;
    }
    if (command[0] === "sleep") await new Promise<never>(() => undefined);
    yield { kind: "exit", exit: { code: command[0] === "false" ? 1 : 0, timed_out: false }, stdoutBytes: total, stderrBytes: 0 };
  };
  const resolved = async (): Promise<void> => await Promise.resolve();
  return {
    stdinOffset: 0,
    output: output(),
    ack: () => undefined,
    writeStdin: resolved,
    endStdin: resolved,
    resize: resolved,
    signal: resolved,
    detach: () => undefined,
  };
}

function makeStat(path: string, size: number): FileStat {
  return { path, type: "file", size, mode: 0o644, uid: 0, gid: 0, modified_at: new Date(0).toISOString() };
}

async function* iterate<T>(items: readonly T[]): AsyncGenerator<T> {
  await Promise.resolve();
  yield* items;
}

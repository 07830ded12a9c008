/** A process to run the program in, without being one: streams in memory, signals on call. */
import { PassThrough, Writable } from "node:stream";
import type { Environment, SignalName, TerminalInput, TerminalOutput } from "../environment.ts";
import { runCli } from "../run-cli.ts";

export interface FakeEnvironmentOptions {
  readonly variables?: Readonly<Record<string, string>>;
  /** Whether the streams are a terminal. */
  readonly isTty?: boolean;
  /** All of standard input; without it, input stays open and empty until `type` and `endInput`. */
  readonly stdin?: string | Uint8Array;
}

class Capture extends Writable {
  readonly isTTY: boolean;
  columns = 100;
  rows = 30;
  text = "";
  readonly #waiting: { readonly wanted: string; readonly wake: () => void }[] = [];

  constructor(isTty: boolean) {
    super();
    this.isTTY = isTty;
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.text += chunk.toString("latin1");
    for (const waiter of this.#waiting) if (this.text.includes(waiter.wanted)) waiter.wake();
    done();
  }

  /** Resolves when the text has come. */
  async waitFor(wanted: string): Promise<void> {
    if (this.text.includes(wanted)) return;
    await new Promise<void>((resolve) => this.#waiting.push({ wanted, wake: resolve }));
  }
}

export class FakeEnvironment implements Environment {
  readonly variables: Readonly<Record<string, string | undefined>>;
  readonly stdin: TerminalInput;
  readonly stdout: TerminalOutput & Capture;
  readonly stderr: TerminalOutput & Capture;
  /** Every change of the terminal's mode. */
  readonly rawModes: boolean[] = [];
  /** Arguments the daemon's program was to be started with. */
  daemonArgs: readonly string[] | undefined;
  exitCode: number | undefined;
  timeMs = 0;
  readonly #input = new PassThrough();
  readonly #signals = new Map<SignalName, Set<() => void>>();
  readonly #exits = new Set<() => void>();
  readonly #pipes = new Set<() => void>();

  constructor(options: FakeEnvironmentOptions = {}) {
    const isTty = options.isTty === true;
    this.variables = options.variables ?? {};
    this.stdout = new Capture(isTty);
    this.stderr = new Capture(isTty);
    this.stdin = Object.assign(this.#input, { isTTY: isTty, setRawMode: (mode: boolean) => this.rawModes.push(mode) });
    if (options.stdin !== undefined) this.#input.end(options.stdin);
  }

  nowMs(): number {
    return (this.timeMs += 10);
  }

  onSignal(name: SignalName, handler: () => void): () => void {
    const handlers = this.#signals.get(name) ?? new Set();
    this.#signals.set(name, handlers.add(handler));
    return () => handlers.delete(handler);
  }

  onExit(handler: () => void): () => void {
    this.#exits.add(handler);
    return () => this.#exits.delete(handler);
  }

  onBrokenPipe(handler: () => void): () => void {
    this.#pipes.add(handler);
    return () => this.#pipes.delete(handler);
  }

  exit(code: number): never {
    this.exitCode = code;
    for (const handler of this.#exits) handler();
    throw new Error(`exit ${code}`);
  }

  becomeDaemon(args: readonly string[]): void {
    this.daemonArgs = args;
  }

  send(name: SignalName): void {
    for (const handler of this.#signals.get(name) ?? []) handler();
  }

  type(text: string): void {
    this.#input.write(text);
  }

  endInput(): void {
    this.#input.end();
  }

  /** Handlers that were never taken back. */
  get leftovers(): number {
    return this.#exits.size + this.#pipes.size + [...this.#signals.values()].reduce((sum, handlers) => sum + handlers.size, 0);
  }
}

export interface CliResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly environment: FakeEnvironment;
}

/** One run with the given words, to its end. */
export async function runFake(words: readonly string[], options: FakeEnvironmentOptions = {}): Promise<CliResult> {
  const environment = new FakeEnvironment({ stdin: "", ...options });
  const code = await runCli(words, environment);
  return { code, stdout: environment.stdout.text, stderr: environment.stderr.text, environment };
}

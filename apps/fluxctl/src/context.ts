/** What a command works with: the daemon's client, the printer, progress, and the signal that says "stop". */
import type { Client } from "@fluxvm/sdk";
import { createClient } from "@fluxvm/sdk";
import { resolveConnection, type ConnectionWish } from "./connection.ts";
import type { Environment } from "./environment.ts";
import { Interrupts } from "./interrupts.ts";
import { Printer, type OutputFormat } from "./output/printer.ts";
import { ProgressDisplay } from "./output/progress.ts";

export interface GlobalOptions {
  readonly server: string | undefined;
  readonly tokenFile: string | undefined;
  readonly output: OutputFormat;
  readonly isQuiet: boolean;
}

export class CommandContext {
  readonly environment: Environment;
  readonly output: OutputFormat;
  readonly isQuiet: boolean;
  readonly printer: Printer;
  readonly interrupts: Interrupts;
  readonly #connection: ConnectionWish;
  #client: Promise<Client> | undefined;

  constructor(environment: Environment, options: GlobalOptions) {
    this.environment = environment;
    this.output = options.output;
    this.isQuiet = options.isQuiet;
    this.printer = new Printer(environment, options);
    this.interrupts = new Interrupts(environment);
    this.#connection = { server: options.server, tokenFile: options.tokenFile, variables: environment.variables };
  }

  /** Fires when the user wants to stop. */
  get signal(): AbortSignal {
    return this.interrupts.signal;
  }

  /** The daemon's client, made when first asked for. */
  async client(): Promise<Client> {
    this.#client ??= resolveConnection(this.#connection).then((options) => createClient(options));
    return await this.#client;
  }

  progress(label: string, options: { readonly silentMs?: number } = {}): ProgressDisplay {
    return new ProgressDisplay({ environment: this.environment, isQuiet: this.isQuiet, label, ...options });
  }

  /** A signal for cleaning up after `signal` has fired. */
  cleanupSignal(): AbortSignal {
    return AbortSignal.timeout(60_000);
  }

  async close(): Promise<void> {
    this.interrupts.close();
    const client = await this.#client?.catch(() => undefined); // it could not be made: nothing to close
    await client?.close();
  }
}

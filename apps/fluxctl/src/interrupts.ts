/**
 * Signals from outside. By default one cancels what is under way (so that it can clean up), and a second one ends the
 * process at once. A command that hands signals on captures them for that time.
 *
 *   default ──signal──► cancelling ──signal──► exit          default ◄──capture / release──► captured
 */
import { PlatformError } from "@fluxvm/core";
import type { Environment, SignalName } from "./environment.ts";

const SIGNALS: readonly SignalName[] = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"];
const INTERRUPTED_EXIT = 130;

export class Interrupts {
  readonly #environment: Environment;
  readonly #controller = new AbortController();
  readonly #release: (() => void)[];
  #capture: ((name: SignalName) => void) | undefined;

  constructor(environment: Environment) {
    this.#environment = environment;
    this.#release = SIGNALS.map((name) => environment.onSignal(name, () => this.#onSignal(name)));
  }

  /** Fires when the user wants to stop. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Hands signals to `handler` instead, until the result is called. */
  capture(handler: (name: SignalName) => void): () => void {
    this.#capture = handler;
    return () => {
      if (this.#capture === handler) this.#capture = undefined;
    };
  }

  cancel(): void {
    this.#controller.abort(new PlatformError("REQUEST_CANCELLED", "Interrupted"));
  }

  close(): void {
    for (const release of this.#release) release();
  }

  #onSignal(name: SignalName): void {
    if (this.#capture !== undefined) return this.#capture(name);
    if (this.#controller.signal.aborted) this.#environment.exit(INTERRUPTED_EXIT);
    this.cancel();
  }
}

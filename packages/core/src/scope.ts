/**
 * A stack of releases: what a half-made thing holds. `release()` runs them in reverse, each once, and goes on when one
 * fails; `commit()` gives the holdings up to their new owner.
 */
export class Scope {
  #releases: { readonly name: string; readonly run: () => Promise<void> }[] = [];

  add(name: string, run: () => Promise<void>): void {
    this.#releases.push({ name, run });
  }

  commit(): void {
    this.#releases = [];
  }

  /** What failed to be released, in the order tried. Empty when all went well. */
  async release(): Promise<readonly { readonly name: string; readonly error: unknown }[]> {
    const failures: { name: string; error: unknown }[] = [];
    const pending = this.#releases.toReversed();
    this.#releases = [];
    for (const { name, run } of pending) {
      try {
        await run();
      } catch (error) {
        failures.push({ name, error });
      }
    }
    return failures;
  }
}

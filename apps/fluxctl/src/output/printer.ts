/** Results to standard output, in the format asked for; remarks to standard error, unless quiet. */
import type { Environment } from "../environment.ts";
import { formatRecord, formatTable, type Column } from "./table.ts";
import { sanitise } from "./text.ts";

export const OUTPUT_FORMATS = ["table", "json", "name"] as const;
export type OutputFormat = (typeof OUTPUT_FORMATS)[number];

export interface Presentation<Item> {
  readonly columns: readonly Column<Item>[];
  /** For one record by itself; default `columns`. */
  readonly details?: readonly Column<Item>[];
  readonly name: (item: Item) => string;
}

export class Printer {
  readonly #environment: Environment;
  readonly #format: OutputFormat;
  readonly #isQuiet: boolean;

  constructor(environment: Environment, options: { readonly output: OutputFormat; readonly isQuiet: boolean }) {
    this.#environment = environment;
    this.#format = options.output;
    this.#isQuiet = options.isQuiet;
  }

  list<Item>(items: readonly Item[], presentation: Presentation<Item>): void {
    switch (this.#format) {
      case "json":
        return this.#json(items);
      case "name":
        return this.text(items.map((item) => `${sanitise(presentation.name(item))}\n`).join(""));
      case "table":
        return this.text(formatTable(items, presentation.columns));
    }
  }

  record<Item>(item: Item, presentation: Presentation<Item>): void {
    switch (this.#format) {
      case "json":
        return this.#json(item);
      case "name":
        return this.text(`${sanitise(presentation.name(item))}\n`);
      case "table":
        return this.text(formatRecord(item, presentation.details ?? presentation.columns));
    }
  }

  /** What an action came to: the record for programs, a sentence for people. */
  result<Item>(item: Item, presentation: Presentation<Item>, sentence: string): void {
    if (this.#format !== "table") return this.record(item, presentation);
    if (!this.#isQuiet) this.text(`${sanitise(sentence)}\n`);
  }

  /** Something done that has no record. */
  done(sentence: string, value: Readonly<Record<string, unknown>>): void {
    if (this.#format === "json") return this.#json(value);
    if (this.#format === "table" && !this.#isQuiet) this.text(`${sanitise(sentence)}\n`);
  }

  text(text: string): void {
    this.#environment.stdout.write(text);
  }

  /** A remark on the way, for people. */
  note(text: string): void {
    if (!this.#isQuiet) this.#environment.stderr.write(`${sanitise(text)}\n`);
  }

  #json(value: unknown): void {
    this.text(`${JSON.stringify(value, null, 2)}\n`);
  }
}

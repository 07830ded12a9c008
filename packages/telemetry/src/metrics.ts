/**
 * Metrics in the Prometheus text format.
 *
 * An owner declares its metrics as data in its `metrics.ts`:
 *
 *     export const METRICS = defineMetrics({
 *       vmStarts: counter({ name: "fluxvm_vm_starts_total", help: "VM starts.", labels: { outcome: ["ok", "error"] } }),
 *     });
 *
 * and the process that wires it makes them live: `registry.create(METRICS).vmStarts.inc({ outcome: "ok" })`. Declaring
 * registers nothing, so two registries (two daemons in one test) never share a count, and the manual page is generated
 * from the same data. A label lists its possible values; each combination starts at zero, so that a rate over it works
 * from the first event on. A label with an empty list takes any value (few, please) and has no rows until used.
 */
import { assert } from "@fluxvm/core";
import { collectDefaultMetrics, Counter as PromCounter, Gauge as PromGauge, Histogram as PromHistogram, Registry } from "prom-client";

export type MetricKind = "counter" | "gauge" | "histogram";
export type LabelValues<L extends string> = Readonly<Record<L, readonly string[]>>;

interface DeclarationOptions<L extends string> {
  /** `fluxvm_<thing>_<unit>`, and `_total` at the end of a counter's. */
  readonly name: string;
  readonly help: string;
  readonly labels?: LabelValues<L>;
}

/** No labels. Its own overload, since inference inside `defineMetrics` would take any string for a label. */
type PlainOptions = Omit<DeclarationOptions<never>, "labels"> & { readonly labels?: undefined };

interface Buckets {
  /** Upper bounds; default `DURATION_BUCKETS_SECONDS`. */
  readonly buckets?: readonly number[];
}

export interface MetricDeclaration<K extends MetricKind = MetricKind, L extends string = string> {
  readonly kind: K;
  readonly name: string;
  readonly help: string;
  readonly labels: LabelValues<L>;
  /** Upper bounds of a histogram's buckets. */
  readonly buckets: readonly number[];
}

export type MetricDeclarations = Readonly<Record<string, MetricDeclaration>>;

type LabelArgs<L extends string, Rest extends readonly unknown[]> = [L] extends [never]
  ? Rest
  : [labels: Readonly<Record<L, string>>, ...Rest];

export interface Counter<L extends string = never> {
  inc(...args: LabelArgs<L, [amount?: number]>): void;
}

export interface Gauge<L extends string = never> {
  set(...args: LabelArgs<L, [value: number]>): void;
}

export interface Histogram<L extends string = never> {
  observe(...args: LabelArgs<L, [value: number]>): void;
}

type Instrument<D> =
  D extends MetricDeclaration<"counter", infer L>
    ? Counter<L>
    : D extends MetricDeclaration<"gauge", infer L>
      ? Gauge<L>
      : D extends MetricDeclaration<"histogram", infer L>
        ? Histogram<L>
        : never;

export type Instruments<D extends MetricDeclarations> = { readonly [Name in keyof D]: Instrument<D[Name]> };

const NAME = /^fluxvm_[a-z0-9]+(_[a-z0-9]+)*$/;
const LABEL = /^[a-z][a-z0-9]*(_[a-z0-9]+)*$/;
/** Most label combinations a metric may start with. */
const MAX_SERIES = 500;

/** Seconds, from a millisecond to two minutes: fits an API call as well as a boot. */
export const DURATION_BUCKETS_SECONDS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120] as const;

export function counter(options: PlainOptions): MetricDeclaration<"counter", never>;
export function counter<L extends string>(options: DeclarationOptions<L>): MetricDeclaration<"counter", L>;
export function counter<L extends string>(options: DeclarationOptions<L>): MetricDeclaration<"counter", L> {
  assert(options.name.endsWith("_total"), `counter ${options.name} must end in _total`);
  return declare("counter", options);
}

export function gauge(options: PlainOptions): MetricDeclaration<"gauge", never>;
export function gauge<L extends string>(options: DeclarationOptions<L>): MetricDeclaration<"gauge", L>;
export function gauge<L extends string>(options: DeclarationOptions<L>): MetricDeclaration<"gauge", L> {
  assert(!options.name.endsWith("_total"), `gauge ${options.name} must not end in _total`);
  return declare("gauge", options);
}

export function histogram(options: PlainOptions & Buckets): MetricDeclaration<"histogram", never>;
export function histogram<L extends string>(options: DeclarationOptions<L> & Buckets): MetricDeclaration<"histogram", L>;
export function histogram<L extends string>(options: DeclarationOptions<L> & Buckets): MetricDeclaration<"histogram", L> {
  return { ...declare("histogram", options), buckets: options.buckets ?? DURATION_BUCKETS_SECONDS };
}

function declare<K extends MetricKind, L extends string>(kind: K, options: DeclarationOptions<L>): MetricDeclaration<K, L> {
  assert(NAME.test(options.name), `bad metric name ${options.name}`);
  const labels = options.labels ?? ({} as LabelValues<L>); // without labels L is never, whose record is empty
  for (const label of Object.keys(labels)) assert(LABEL.test(label), `bad label ${label} of ${options.name}`);
  return { kind, name: options.name, help: options.help, labels, buckets: [] };
}

/** Keeps the literal types and refuses the same name twice. */
export function defineMetrics<const D extends MetricDeclarations>(declarations: D): D {
  const names = Object.values(declarations).map((d) => d.name);
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  assert(twice === undefined, `metric ${twice} is declared twice`);
  return declarations;
}

export class MetricsRegistry {
  readonly #registry = new Registry();
  readonly #hooks: (() => void | Promise<void>)[] = [];

  readonly contentType = "text/plain; version=0.0.4; charset=utf-8";

  /** Makes the declared metrics live, at zero. A name can be made once in a registry. */
  create<D extends MetricDeclarations>(declarations: D): Instruments<D> {
    const entries = Object.entries(declarations).map(([key, declaration]) => [key, this.#createOne(declaration)]);
    return Object.fromEntries(entries) as Instruments<D>; // built key by key from the same declarations
  }

  /** Runs before each rendering, to set gauges from what is true at that moment. A hook that fails leaves the old value. */
  beforeRender(hook: () => void | Promise<void>): void {
    this.#hooks.push(hook);
  }

  /** Adds memory, CPU, descriptors and event-loop lag of this process, under their customary names. */
  collectProcessMetrics(): void {
    collectDefaultMetrics({ register: this.#registry });
  }

  async render(): Promise<string> {
    await Promise.allSettled(this.#hooks.map(async (hook) => await hook()));
    return await this.#registry.metrics();
  }

  #createOne(declaration: MetricDeclaration): Counter<string> | Gauge<string> | Histogram<string> | Counter | Gauge | Histogram {
    const { kind, name, help } = declaration;
    const labelNames = Object.keys(declaration.labels);
    const base = { name, help, labelNames, registers: [this.#registry] };
    const zeroes = listCombinations(declaration);
    switch (kind) {
      case "counter": {
        const metric = new PromCounter(base);
        for (const labels of zeroes) metric.inc(labels, 0);
        return { inc: (...args: unknown[]) => metric.inc(...splitLabels(labelNames, args, 1)) };
      }
      case "gauge": {
        const metric = new PromGauge(base);
        for (const labels of zeroes) metric.set(labels, 0);
        return { set: (...args: unknown[]) => metric.set(...splitLabels(labelNames, args, 0)) };
      }
      case "histogram": {
        const metric = new PromHistogram({ ...base, buckets: [...declaration.buckets] });
        for (const labels of zeroes) metric.zero(labels);
        return { observe: (...args: unknown[]) => metric.observe(...splitLabels(labelNames, args, 0)) };
      }
    }
  }
}

/** Every combination of the listed label values; none when a label takes any value; one empty one without labels. */
function listCombinations(declaration: MetricDeclaration): Record<string, string>[] {
  let combinations: Record<string, string>[] = [{}];
  for (const [label, values] of Object.entries(declaration.labels)) {
    combinations = combinations.flatMap((c) => values.map((value) => ({ ...c, [label]: value })));
  }
  assert(combinations.length <= MAX_SERIES, `metric ${declaration.name} starts with ${combinations.length} series`);
  return combinations;
}

/** The label object (empty without labels) and the number that follows it. */
function splitLabels(labelNames: readonly string[], args: readonly unknown[], fallback: number): [Record<string, string>, number] {
  const labels = labelNames.length > 0 ? (args[0] as Record<string, string>) : {}; // LabelArgs puts it first
  const value = args[labelNames.length > 0 ? 1 : 0] ?? fallback;
  return [labels, value as number]; // LabelArgs makes it a number
}

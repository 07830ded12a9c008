/**
 * Shared by every benchmark: alternate ours and the peer, summarise, print one JSON object a line on standard output.
 * Progress goes to standard error. Nothing here is asserted: machines are shared and noisy.
 */
import { cpus, release } from "node:os";

export interface Summary {
  readonly min: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

export interface BenchResult {
  readonly bench: string;
  readonly case: string;
  readonly peer: string | null;
  readonly n: number;
  readonly unit: string;
  readonly ours: Summary;
  readonly theirs: Summary | null;
  /** How many times better than the peer we are (above 1 is better), by medians; null without a peer. */
  readonly speedup: number | null;
  readonly host: { readonly cpu: string; readonly cores: number; readonly kernel: string };
}

export interface Contender {
  readonly name: string;
  /** One measured round, in the bench's unit. */
  run(round: number): Promise<number>;
}

export function summarise(samples: readonly number[]): Summary {
  const sorted = samples.toSorted((a, b) => a - b);
  const at = (quantile: number): number => sorted[Math.max(0, Math.ceil(quantile * sorted.length) - 1)] ?? Number.NaN;
  const round = (value: number): number => Math.round(value * 1000) / 1000;
  return { min: round(at(0)), p50: round(at(0.5)), p99: round(at(0.99)), max: round(at(1)) };
}

export interface CompareOptions {
  readonly bench: string;
  readonly case: string;
  readonly n: number;
  readonly unit: "ms" | "MiB/s" | "us" | "commits/s";
  readonly ours: Contender;
  readonly peers: readonly Contender[];
}

/** Runs round after round, each contender once a round in turn (order reversed every other round), and prints one line a peer. */
export async function compare(options: CompareOptions): Promise<void> {
  const contenders = [options.ours, ...options.peers];
  const samples = new Map<string, number[]>(contenders.map((c) => [c.name, []]));
  for (let round = 0; round < options.n; round += 1) {
    for (const contender of round % 2 === 0 ? contenders : contenders.toReversed()) {
      const value = await contender.run(round);
      samples.get(contender.name)?.push(value);
      process.stderr.write(
        `${options.bench}/${options.case} round ${round + 1}/${options.n} ${contender.name}: ${value.toFixed(2)} ${options.unit}\n`,
      );
    }
  }
  const ours = summarise(samples.get(options.ours.name) ?? []);
  for (const peer of options.peers.length === 0 ? [undefined] : options.peers) {
    const theirs = peer === undefined ? null : summarise(samples.get(peer.name) ?? []);
    print({
      ...pick(options),
      peer: peer?.name ?? null,
      ours,
      theirs,
      speedup: computeSpeedup(ours, theirs, options.unit),
      host: describeHost(),
    });
  }
}

function pick(options: CompareOptions): Pick<BenchResult, "bench" | "case" | "n" | "unit"> {
  return { bench: options.bench, case: options.case, n: options.n, unit: options.unit };
}

function computeSpeedup(ours: Summary, theirs: Summary | null, unit: string): number | null {
  if (theirs === null) return null;
  const ratio = unit.endsWith("/s") ? ours.p50 / theirs.p50 : theirs.p50 / ours.p50;
  return Math.round(ratio * 1000) / 1000;
}

export function print(result: BenchResult): void {
  process.stdout.write(`${JSON.stringify(result)}\n`);
}

export function describeHost(): BenchResult["host"] {
  return { cpu: cpus()[0]?.model ?? "unknown", cores: cpus().length, kernel: release() };
}

/**
 * How far something long has come, on standard error: one line redrawn in place on a terminal, with a bar, rate and
 * time left; elsewhere a plain line for each phase and at most one every five seconds. Quiet shows nothing, and what is
 * over within `silentMs` shows nothing either.
 */
import { formatBytes, formatDuration } from "@fluxvm/core";
import type { Environment } from "../environment.ts";
import { sanitise } from "./text.ts";

export interface ProgressState {
  readonly phase?: string | undefined;
  readonly doneBytes: number;
  readonly totalBytes?: number | undefined;
  readonly message?: string | undefined;
}

const REDRAW_MS = 100;
const PLAIN_LINE_MS = 5000;
const BAR_CELLS = 24;
/** The rate is taken over this long, so that it neither jumps nor lags. */
const RATE_WINDOW_MS = 5000;
const MAX_SAMPLES = 64;

export class ProgressDisplay {
  readonly #environment: Environment;
  readonly #label: string;
  readonly #isQuiet: boolean;
  readonly #startedMs: number;
  readonly #silentMs: number;
  #samples: { readonly atMs: number; readonly bytes: number }[] = [];
  #phase: string | undefined;
  #shownMs = Number.NEGATIVE_INFINITY;
  #hasLine = false;

  constructor(options: {
    readonly environment: Environment;
    readonly label: string;
    readonly isQuiet: boolean;
    readonly silentMs?: number;
  }) {
    this.#environment = options.environment;
    this.#label = sanitise(options.label);
    this.#isQuiet = options.isQuiet;
    this.#startedMs = options.environment.nowMs();
    this.#silentMs = options.silentMs ?? 0;
  }

  update(state: ProgressState): void {
    if (this.#isQuiet) return;
    const nowMs = this.#environment.nowMs();
    const isNewPhase = state.phase !== this.#phase;
    if (isNewPhase) this.#samples = [];
    this.#phase = state.phase;
    this.#sample(nowMs, state.doneBytes);
    if (nowMs - this.#startedMs < this.#silentMs) return;
    const isTerminal = this.#environment.stderr.isTTY === true;
    if (!isNewPhase && nowMs - this.#shownMs < (isTerminal ? REDRAW_MS : PLAIN_LINE_MS)) return;
    this.#shownMs = nowMs;
    const line = `${this.#label}: ${formatProgress(state, this.#rate(), isTerminal)}`;
    if (isTerminal) this.#redraw(line);
    else this.#environment.stderr.write(`${line}\n`);
  }

  /** Says how it ended, with the time it took. */
  done(outcome: string): void {
    if (this.#isQuiet) return;
    this.clear();
    this.#environment.stderr.write(
      `${this.#label}: ${sanitise(outcome)} (${formatDuration(this.#environment.nowMs() - this.#startedMs)})\n`,
    );
  }

  /** Takes the redrawn line away, for what is to be printed next. */
  clear(): void {
    if (this.#hasLine) this.#environment.stderr.write("\r\u001b[K");
    this.#hasLine = false;
  }

  #redraw(line: string): void {
    const width = Math.max(20, (this.#environment.stderr.columns ?? 80) - 1);
    this.#environment.stderr.write(`\r\u001b[K${line.slice(0, width)}`);
    this.#hasLine = true;
  }

  #sample(atMs: number, bytes: number): void {
    this.#samples.push({ atMs, bytes });
    while (this.#samples.length > 2 && (this.#samples.length > MAX_SAMPLES || atMs - (this.#samples[0]?.atMs ?? 0) > RATE_WINDOW_MS)) {
      this.#samples.shift();
    }
  }

  /** Bytes a second, once there is enough to tell. */
  #rate(): number | undefined {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    if (first === undefined || last === undefined || last.atMs - first.atMs < 200) return undefined;
    return ((last.bytes - first.bytes) * 1000) / (last.atMs - first.atMs);
  }
}

export function formatProgress(state: ProgressState, rate: number | undefined, hasBar: boolean): string {
  const { phase, doneBytes, totalBytes, message } = state;
  const parts: string[] = [];
  if (phase !== undefined) parts.push(sanitise(phase));
  if (totalBytes !== undefined && totalBytes > 0) {
    const share = Math.min(1, doneBytes / totalBytes);
    const filled = Math.floor(share * BAR_CELLS);
    if (hasBar) parts.push(`[${"#".repeat(filled)}${".".repeat(BAR_CELLS - filled)}]`);
    parts.push(`${Math.floor(share * 100)}%`, `${formatBytes(doneBytes)} of ${formatBytes(totalBytes)}`);
  } else if (doneBytes > 0) {
    parts.push(formatBytes(doneBytes));
  }
  if (rate !== undefined && rate >= 1) {
    parts.push(`${formatBytes(Math.round(rate))}/s`);
    if (totalBytes !== undefined && totalBytes > doneBytes) parts.push(`${formatDuration(((totalBytes - doneBytes) / rate) * 1000)} left`);
  }
  if (message !== undefined && message !== "") parts.push(sanitise(message));
  return parts.join("  ");
}

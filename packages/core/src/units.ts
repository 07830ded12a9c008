/** Sizes and durations as people write them. */
import { PlatformError } from "./errors/platform-error.ts";

export const KIB = 1024;
export const MIB = 1024 * KIB;
export const GIB = 1024 * MIB;

const SIZE_UNITS: Readonly<Record<string, number>> = {
  "": 1,
  b: 1,
  k: KIB,
  kib: KIB,
  m: MIB,
  mib: MIB,
  g: GIB,
  gib: GIB,
  t: 1024 * GIB,
  tib: 1024 * GIB,
};
const DURATION_UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Bytes of `512M`, `2GiB`, `1024`. @throws PlatformError `REQUEST_INVALID` */
export function parseSizeBytes(text: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*([a-z]*)$/i.exec(text.trim());
  const unit = SIZE_UNITS[(match?.[2] ?? "?").toLowerCase()];
  const bytes = unit === undefined ? Number.NaN : Math.round(Number(match?.[1]) * unit);
  if (!Number.isSafeInteger(bytes))
    throw new PlatformError("REQUEST_INVALID", `Not a size: ${JSON.stringify(text.slice(0, 80))} (try 512M or 2GiB)`);
  return bytes;
}

/** Milliseconds of `90s`, `5m`, `1h30m`. A bare number is seconds. @throws PlatformError `REQUEST_INVALID` */
export function parseDurationMs(text: string): number {
  const trimmed = text.trim();
  const withUnit = /^\d+(\.\d+)?$/.test(trimmed) ? `${trimmed}s` : trimmed;
  let total = /^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(withUnit) ? 0 : Number.NaN;
  for (const [, number, unit] of withUnit.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g))
    total += Number(number) * (DURATION_UNITS[unit ?? ""] ?? 0);
  const rounded = Math.round(total);
  if (!Number.isSafeInteger(rounded)) {
    throw new PlatformError("REQUEST_INVALID", `Not a duration: ${JSON.stringify(text.slice(0, 80))} (try 90s, 5m or 1h30m)`);
  }
  return rounded;
}

/** `1.5 GiB`, `12 MiB`, `300 B`. */
export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const print = (value: number): string => (value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1));
  let value = bytes;
  let index = 0;
  while (Math.round(value) >= 1024 && index < units.length - 1) {
    value /= 1024;
    index += 1;
  }
  return `${print(value)} ${units[index]}`;
}

/** `850 ms`, `2.4 s`, `3m 20s`, `2h 5m`. */
export function formatDuration(ms: number): string {
  if (Math.round(ms) < 1000) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${seconds % 60}s`;
  return `${Math.floor(seconds / 3600)}h ${Math.floor((seconds % 3600) / 60)}m`;
}

/** Values of options as people write them. All throw `REQUEST_INVALID` naming the option. */
import { MIB, parseDurationMs, parseSizeBytes, PlatformError } from "@fluxvm/core";

function invalid(option: string, why: string): PlatformError {
  return new PlatformError("REQUEST_INVALID", `Invalid ${option}: ${why}`, { fields: [{ path: option, message: why }] });
}

function within<T>(option: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw error instanceof PlatformError ? invalid(option, error.message) : error;
  }
}

export function parseInteger(option: string, text: string): number {
  const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
  if (!Number.isSafeInteger(value)) throw invalid(option, `${JSON.stringify(text)} is not a whole number`);
  return value;
}

/** Whole seconds of `90s`, `5m`, `1h30m`; a bare number is seconds. */
export function parseSeconds(option: string, text: string): number {
  return within(option, () => parseDurationMs(text) / 1000);
}

/** MiB of `512M`, `2GiB`; a bare number is MiB, since nobody means bytes here. */
export function parseMib(option: string, text: string): number {
  const mib = within(option, () => parseSizeBytes(/^\d+$/.test(text) ? `${text}M` : text)) / MIB;
  if (!Number.isInteger(mib)) throw invalid(option, `${text} is not a whole number of MiB`);
  return mib;
}

/** GiB of `10G`, `512M`; a bare number is GiB. */
export function parseGib(option: string, text: string): number {
  return within(option, () => parseSizeBytes(/^\d+(\.\d+)?$/.test(text) ? `${text}G` : text)) / (1024 * MIB);
}

/** `KEY=value` pairs; a later one replaces an earlier one of the same key. */
export function parsePairs(option: string, texts: readonly string[]): Record<string, string> {
  const pairs: Record<string, string> = Object.create(null) as Record<string, string>; // a key may be called __proto__
  for (const text of texts) {
    const at = text.indexOf("=");
    if (at < 1) throw invalid(option, `${JSON.stringify(text)} is not KEY=value`);
    pairs[text.slice(0, at)] = text.slice(at + 1);
  }
  return { ...pairs };
}

/** Octal permission bits such as `644`. */
export function parseMode(option: string, text: string): number {
  if (!/^[0-7]{3,4}$/.test(text)) throw invalid(option, `${JSON.stringify(text)} is not an octal mode such as 644`);
  return Number.parseInt(text, 8);
}

export interface Forward {
  readonly host_address?: string;
  readonly host_port: number;
  readonly guest_port: number;
  readonly protocol?: "tcp" | "udp";
}

/** `[ADDRESS:]HOST_PORT:GUEST_PORT[/udp]` */
export function parseForward(option: string, text: string): Forward {
  const match = /^(?:(\d+\.\d+\.\d+\.\d+):)?(\d{1,5}):(\d{1,5})(?:\/(tcp|udp))?$/.exec(text);
  if (match === null) throw invalid(option, `${JSON.stringify(text)} is not [ADDRESS:]HOST_PORT:GUEST_PORT[/udp]`);
  const [, address, host, guest, protocol] = match;
  return {
    ...(address === undefined ? {} : { host_address: address }),
    host_port: Number(host),
    guest_port: Number(guest),
    ...(protocol === "udp" ? { protocol: "udp" as const } : {}),
  };
}

/** What the planner must know of this host: where QEMU is, which version, and how fast the time-stamp counter runs. */
import { constants } from "node:fs";
import { access, readdir, readFile, realpath, stat } from "node:fs/promises";
import { join } from "node:path";
import { PlatformError, type CallOptions } from "@fluxvm/core";
import { runTool } from "@fluxvm/host";
import type { QemuConfig } from "./config.ts";
import type { QemuVersion } from "./plan.ts";

export interface QemuBinary {
  /** Links resolved. */
  readonly path: string;
  readonly version: QemuVersion;
  readonly versionText: string;
}

/** Older ones lack `-action` or JSON `-blockdev` as used here. */
const MIN_MAJOR = 7;
const VERSION_TIMEOUT_MS = 10_000;

/** Finds QEMU and asks its version, once per program file: an upgrade is noticed by the file's time. */
export class QemuBinaryFinder {
  readonly #config: QemuConfig;
  #known: { readonly key: string; readonly binary: QemuBinary } | undefined;

  constructor(config: QemuConfig) {
    this.#config = config;
  }

  /** @throws PlatformError `HOST_TOOL_MISSING` naming the program, `HOST_TOOL_FAILED`, `HOST_CAPABILITY_MISSING` when it is too old. */
  async find(options: CallOptions): Promise<QemuBinary> {
    const path = await this.#locate();
    const { mtimeMs, size } = await stat(path);
    const key = `${path} ${mtimeMs} ${size}`;
    if (this.#known?.key === key) return this.#known.binary;
    const { stdout } = await runTool({ command: path, args: ["--version"], timeoutMs: VERSION_TIMEOUT_MS, signal: options.signal });
    const binary = { path, ...parseVersion(stdout) };
    this.#known = { key, binary };
    return binary;
  }

  async #locate(): Promise<string> {
    const { binary, searchPath } = this.#config;
    const candidates = binary.startsWith("/") ? [binary] : searchPath.map((folder) => join(folder, binary));
    for (const candidate of candidates) {
      try {
        await access(candidate, constants.X_OK);
        return await realpath(candidate);
      } catch {
        // the next folder may have it
      }
    }
    throw new PlatformError("HOST_TOOL_MISSING", `${binary} is not installed; "fluxctl doctor" says how to get it`);
  }
}

/** `QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)`. */
export function parseVersion(text: string): { readonly version: QemuVersion; readonly versionText: string } {
  const match = /^QEMU emulator version ((\d+)\.(\d+)(?:\.\d+)?)/m.exec(text);
  if (match === null)
    throw new PlatformError("HOST_TOOL_FAILED", "QEMU does not say its version", { details: { output: text.slice(0, 200) } });
  const [, versionText = "", major, minor] = match;
  const version = { major: Number(major), minor: Number(minor) };
  if (version.major < MIN_MAJOR) {
    throw new PlatformError("HOST_CAPABILITY_MISSING", `QEMU ${versionText} is too old: at least version ${MIN_MAJOR}.0 is needed`);
  }
  return { version, versionText };
}

/**
 * The counter's frequency, which an emulated guest cannot read anywhere and on `microvm` can only measure against the
 * interval timer; on a busy host that fails about once in ten boots, and the guest then has no timer at all and hangs.
 * `undefined` when the kernel does not show it.
 */
export async function readTscKhz(): Promise<number | undefined> {
  const cpuinfo = await readFile("/proc/cpuinfo", "utf8").catch(() => "");
  const scaling = await readdir("/sys/devices/system/cpu/cpu0/cpufreq").catch(() => []);
  return parseTscKhz(cpuinfo, scaling.length > 0);
}

/** "cpu MHz" is the frequency the kernel measured its counter with, unless a driver reports the current clock there instead. */
export function parseTscKhz(cpuinfo: string, hasFrequencyScaling: boolean): number | undefined {
  const flags = /^flags\s*:(.*)$/m.exec(cpuinfo)?.[1]?.split(" ") ?? [];
  const mhz = /^cpu MHz\s*:\s*(\d+\.\d{3})$/m.exec(cpuinfo)?.[1];
  if (mhz === undefined || hasFrequencyScaling || flags.includes("aperfmperf") || !flags.includes("constant_tsc")) return undefined;
  const khz = Math.round(Number(mhz) * 1000);
  return khz >= 100_000 && khz <= 10_000_000 ? khz : undefined;
}

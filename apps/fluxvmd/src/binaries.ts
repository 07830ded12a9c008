/** Where the native programs built with this version are: beside an installed daemon, or in the workspace's Cargo target. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Config } from "@fluxvm/contracts";
import { PlatformError } from "@fluxvm/core";

export interface Binaries {
  readonly hostHelper: string;
  readonly guestAgent: string;
  /** The probe's few hundred bytes of guest; absent in an installation without it. */
  readonly probeGuest: string | undefined;
}

const ROOT = join(import.meta.dirname, "..", "..", "..");
const FOLDERS = ["libexec", "native/target/release", "native/target/x86_64-unknown-linux-gnu/release"] as const;

/** @throws PlatformError `HOST_TOOL_MISSING` */
export function findBinaries(tools: Config["tools"]): Binaries {
  return {
    hostHelper: requireBinary(tools.host_helper, "fluxvm-host-helper"),
    guestAgent: requireBinary(tools.guest_agent, "fluxvm-guest-agent"),
    probeGuest: findBuilt("fluxvm-probe-guest"),
  };
}

function requireBinary(configured: string, name: string): string {
  const path = configured === "" ? findBuilt(name) : configured;
  if (path === undefined || !existsSync(path)) {
    const where = configured === "" ? "it is not built; run `npm run setup`" : `there is no ${configured}`;
    throw new PlatformError("HOST_TOOL_MISSING", `Cannot find the program ${name}: ${where}`);
  }
  return path;
}

function findBuilt(name: string): string | undefined {
  return FOLDERS.map((folder) => join(ROOT, folder, name)).find((path) => existsSync(path));
}

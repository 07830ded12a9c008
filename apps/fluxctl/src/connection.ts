/** Which daemon to talk to, and the token for it. */
import { readFile } from "node:fs/promises";
import { PlatformError } from "@fluxvm/core";
import { parseServerAddress, type ClientOptions } from "@fluxvm/sdk";

/** Where a daemon with default configuration listens and keeps its token. */
export const DEFAULT_SERVER = "unix:/run/fluxvm/fluxvm.sock";
export const DEFAULT_TOKEN_FILE = "/var/lib/fluxvm/token";

export interface ConnectionWish {
  readonly server: string | undefined;
  readonly tokenFile: string | undefined;
  readonly variables: Readonly<Record<string, string | undefined>>;
}

/** Options before environment before defaults. A Unix socket needs no token. */
export async function resolveConnection(wish: ConnectionWish): Promise<ClientOptions> {
  const server = wish.server ?? (wish.variables["FLUXVM_SERVER"] || DEFAULT_SERVER);
  const token = await resolveToken(wish, parseServerAddress(server).kind);
  return { server, token, userAgent: "fluxctl" };
}

async function resolveToken(wish: ConnectionWish, kind: "unix" | "tcp"): Promise<string | undefined> {
  if (wish.tokenFile !== undefined) return await readToken(wish.tokenFile);
  const given = wish.variables["FLUXVM_TOKEN"];
  if (given !== undefined && given !== "") return given;
  if (kind === "unix") return undefined;
  try {
    return await readToken(DEFAULT_TOKEN_FILE);
  } catch {
    return undefined; // the daemon says that a token is missing, and how to pass one
  }
}

async function readToken(path: string): Promise<string> {
  try {
    return (await readFile(path, "utf8")).trim();
  } catch (cause) {
    throw new PlatformError("CONFIG_UNREADABLE", `Cannot read the token file ${path}: ${cause instanceof Error ? cause.message : ""}`, {
      cause,
    });
  }
}

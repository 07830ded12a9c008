/**
 * The ways in: a Unix socket of mode 0660, and TCP behind a token.
 *
 * A socket file that nobody answers on is what a killed daemon left and is removed; one that somebody answers on stays
 * and starting fails. The file is opened to the group only after it listens.
 */
import { once } from "node:events";
import { chmodSync, lstatSync, unlinkSync } from "node:fs";
import type { Server } from "node:http";
import { connect, type AddressInfo } from "node:net";
import { PlatformError } from "@fluxvm/core";

export interface TcpAddress {
  readonly host: string;
  readonly port: number;
}

/** @throws PlatformError `PORT_IN_USE`, `STATE_DIR_UNUSABLE` */
export async function listenOnUnixSocket(server: Server, path: string): Promise<void> {
  await removeStaleSocket(path);
  await listen(server, { path }, path);
  chmodSync(path, 0o660);
}

/** @throws PlatformError `PORT_IN_USE`, `CONFIG_INVALID` */
export async function listenOnTcp(server: Server, address: TcpAddress): Promise<TcpAddress> {
  await listen(server, address, `${address.host}:${address.port}`);
  const { address: host, port } = server.address() as AddressInfo; // a TCP server that listens has one
  return { host, port };
}

/** `127.0.0.1:7788`, `[::1]:7788`, `localhost:0`. @throws PlatformError `CONFIG_INVALID` */
export function parseTcpAddress(text: string): TcpAddress {
  const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):(\d{1,5})$/.exec(text);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  if (host === undefined || port > 65_535) {
    throw new PlatformError(
      "CONFIG_INVALID",
      `Cannot load config: "listen" must be like 127.0.0.1:7788 or [::1]:7788, or empty, not ${JSON.stringify(text)}`,
    );
  }
  return { host, port };
}

async function listen(server: Server, target: { readonly path: string } | TcpAddress, shown: string): Promise<void> {
  try {
    server.listen({ ...target, backlog: 511 });
    await once(server, "listening");
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException; // what a server's error event carries
    if (code === "EADDRINUSE") throw new PlatformError("PORT_IN_USE", `Cannot listen on ${shown}: another process does`, { cause });
    const why =
      code === "EACCES"
        ? "permission denied"
        : code === "EADDRNOTAVAIL" || code === "ENOTFOUND"
          ? "this host has no such address"
          : (code ?? "failed");
    throw new PlatformError("STATE_DIR_UNUSABLE", `Cannot listen on ${shown}: ${why}`, { cause });
  }
}

async function removeStaleSocket(path: string): Promise<void> {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return;
  if (!stat.isSocket()) throw new PlatformError("STATE_DIR_UNUSABLE", `Cannot listen on ${path}: a file that is no socket is there`);
  if (await answers(path)) throw new PlatformError("PORT_IN_USE", `Cannot listen on ${path}: another daemon does`);
  unlinkSync(path);
}

async function answers(path: string): Promise<boolean> {
  const socket = connect(path);
  try {
    await once(socket, "connect");
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException; // what a socket's error event carries
    // EAGAIN: somebody listens whose queue is full.
    return code !== "ECONNREFUSED" && code !== "ENOENT";
  } finally {
    socket.destroy();
  }
}

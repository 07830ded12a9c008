/**
 * Ways to a guest's agent, each ending in one byte stream.
 *
 * - `unix`: a socket that is the channel itself (QEMU's virtio-serial port, a test agent).
 * - `connect`: a Unix socket on which a VMM forwards ports: `CONNECT <port>` and a line that begins with `OK`.
 * - `vsock`: the host's AF_VSOCK, which Node has not: somebody passes in `openVsock`.
 */
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { createConnection, type Socket } from "node:net";
import { PlatformError } from "@fluxvm/core";
import type { Duplex } from "node:stream";

export type GuestEndpoint =
  | { readonly kind: "unix"; readonly path: string }
  | { readonly kind: "connect"; readonly path: string; readonly port: number }
  | { readonly kind: "vsock"; readonly cid: number; readonly port: number };

export type OpenVsock = (
  target: { readonly cid: number; readonly port: number },
  options: { readonly signal: AbortSignal },
) => Promise<Duplex>;

const MAX_REPLY_BYTES = 128;
/** Linux's open(2): a handle on whatever lies there, which opens nothing. Node has no name for it. */
const O_PATH = 0o10000000;

/** @throws PlatformError `AGENT_UNREACHABLE` when nobody is there, `HOST_CAPABILITY_MISSING` for vsock without a way to open one. */
export async function openTransport(
  endpoint: GuestEndpoint,
  options: { readonly signal: AbortSignal; readonly openVsock?: OpenVsock | undefined },
): Promise<Duplex> {
  switch (endpoint.kind) {
    case "unix":
      return await connectUnix(endpoint.path, options.signal);
    case "connect":
      return await connectThrough(endpoint, options.signal);
    case "vsock":
      if (options.openVsock === undefined) {
        throw new PlatformError(
          "HOST_CAPABILITY_MISSING",
          "Cannot reach the guest agent over vsock: the host helper is not there to open one",
        );
      }
      return await options.openVsock(endpoint, options);
  }
}

/**
 * The socket lies where a VMM can write. One that was broken out of must not lead the daemon to somebody else's socket,
 * so what lies there is held by a handle, looked at, and connected to through that handle.
 */
async function connectUnix(path: string, signal: AbortSignal): Promise<Socket> {
  signal.throwIfAborted();
  const place = await open(path, O_PATH | constants.O_NOFOLLOW).catch((cause: unknown) => {
    throw unreachable(cause);
  });
  try {
    if (!(await place.stat()).isSocket()) throw unreachable(new Error("what lies at the channel's path is no socket"));
    return await connectTo(`/proc/self/fd/${place.fd}`, signal);
  } finally {
    place.close().catch(() => undefined); // not waited for: whoever gets the socket must listen to it at once
  }
}

async function connectTo(path: string, signal: AbortSignal): Promise<Socket> {
  signal.throwIfAborted();
  return await new Promise<Socket>((resolve, reject) => {
    const socket = createConnection({ path });
    const onAbort = (): void => {
      socket.destroy();
      reject(signal.reason as Error); // reasons are errors here
    };
    signal.addEventListener("abort", onAbort, { once: true });
    socket.once("connect", () => {
      signal.removeEventListener("abort", onAbort);
      socket.removeAllListeners("error");
      resolve(socket);
    });
    socket.once("error", (cause) => {
      signal.removeEventListener("abort", onAbort);
      reject(unreachable(cause));
    });
  });
}

async function connectThrough(endpoint: { readonly path: string; readonly port: number }, signal: AbortSignal): Promise<Socket> {
  const socket = await connectUnix(endpoint.path, signal);
  try {
    socket.write(`CONNECT ${endpoint.port}\n`);
    const reply = await readLine(socket, signal);
    if (!reply.startsWith("OK")) throw unreachable(new Error(`the VMM answered ${JSON.stringify(reply)}`));
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

/** One line; bytes after it are put back. */
async function readLine(socket: Socket, signal: AbortSignal): Promise<string> {
  return await new Promise<string>((resolve, reject) => {
    let held = Buffer.alloc(0);
    const settle = (act: () => void): void => {
      socket.pause();
      socket.off("data", onData).off("close", onClose).off("error", onClose);
      signal.removeEventListener("abort", onAbort);
      act();
    };
    const onClose = (): void => settle(() => reject(unreachable(new Error("the VMM closed the connection"))));
    const onAbort = (): void => settle(() => reject(signal.reason as Error)); // reasons are errors here
    const onData = (chunk: Buffer): void => {
      held = Buffer.concat([held, chunk]);
      const end = held.indexOf(10);
      if (end < 0 && held.length <= MAX_REPLY_BYTES) return;
      settle(() => {
        if (end < 0 || end > MAX_REPLY_BYTES) return reject(unreachable(new Error("the VMM's answer is too long")));
        if (end + 1 < held.length) socket.unshift(held.subarray(end + 1));
        resolve(held.subarray(0, end).toString("latin1"));
      });
    };
    socket.on("data", onData).on("close", onClose).on("error", onClose);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
}

function unreachable(cause: unknown): PlatformError {
  return new PlatformError("AGENT_UNREACHABLE", "The guest agent's channel cannot be reached", { cause });
}

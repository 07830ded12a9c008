/** Where a daemon listens: `unix:/path/to/socket`, or an `http://` or `https://` origin. */
import { PlatformError } from "@fluxvm/contracts";

export type ServerAddress =
  | { readonly kind: "unix"; readonly socketPath: string; readonly origin: string; readonly shown: string }
  | { readonly kind: "tcp"; readonly origin: string; readonly shown: string };

/** @throws PlatformError `REQUEST_INVALID` */
export function parseServerAddress(text: string): ServerAddress {
  if (text.startsWith("unix:")) {
    const socketPath = text.slice("unix:".length).replace(/^\/\/(?=\/)/, "");
    if (!socketPath.startsWith("/")) throw invalidServer(text, "the path of a Unix socket must be absolute");
    return { kind: "unix", socketPath, origin: "http://localhost", shown: `unix:${socketPath}` };
  }
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || (url.protocol !== "http:" && url.protocol !== "https:")) {
    throw invalidServer(text, "write unix:/path/to/socket or http://host:port");
  }
  if (url.username !== "" || url.password !== "") throw invalidServer("(hidden)", "pass the token on its own, not in the address");
  if ((url.pathname !== "/" && url.pathname !== "") || url.search !== "" || url.hash !== "") {
    throw invalidServer(text, "an address has no path; write http://host:port");
  }
  return { kind: "tcp", origin: url.origin, shown: url.origin };
}

function invalidServer(text: string, why: string): PlatformError {
  const message = `Invalid server address ${JSON.stringify(text.slice(0, 200))}: ${why}`;
  return new PlatformError("REQUEST_INVALID", message, { fields: [{ path: "server", message: why }] });
}

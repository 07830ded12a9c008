/** `VM:PATH` as against a local path. A local path with a colon is written `./a:b`. */
import { PlatformError } from "@fluxvm/core";

export type Place =
  | { readonly kind: "guest"; readonly vm: string; readonly path: string }
  | { readonly kind: "local"; readonly path: string };

export function parsePlace(text: string): Place {
  const match = /^([A-Za-z0-9][A-Za-z0-9._-]*):(.*)$/s.exec(text);
  if (match === null) return { kind: "local", path: text };
  return { kind: "guest", vm: match[1] ?? "", path: requireGuestPath(match[2] ?? "") };
}

/** @throws PlatformError `REQUEST_INVALID` unless it is `VM:/path` */
export function requireGuestPlace(text: string): { readonly vm: string; readonly path: string } {
  const place = parsePlace(text);
  if (place.kind === "local") throw new PlatformError("REQUEST_INVALID", `Invalid place ${JSON.stringify(text)}: write VM:/path`);
  return place;
}

function requireGuestPath(path: string): string {
  if (path.includes("\0")) throw new PlatformError("REQUEST_INVALID", "Invalid path: it has a zero byte");
  if (!path.startsWith("/"))
    throw new PlatformError("REQUEST_INVALID", `Invalid path ${JSON.stringify(path)}: a path in the guest is absolute, VM:/path`);
  return path;
}

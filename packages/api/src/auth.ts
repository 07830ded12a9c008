/**
 * Who may use which listener.
 *
 * The Unix socket is guarded by its file mode and needs no token. TCP always needs one, because a guest in user mode
 * can reach the host's loopback. On TCP the `Host` header must be an IP address, localhost or a configured name and a
 * browser's `Origin` must be the daemon itself: a web page that rebinds its DNS name gets nowhere, token or not.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import { isIP } from "node:net";
import { PlatformError } from "@fluxvm/core";

export type ListenerKind = "unix" | "tcp";

export interface AuthRequest {
  readonly listener: ListenerKind;
  /** The `Authorization` header as sent. */
  readonly authorization: string | undefined;
}

export interface Identity {
  /** For logs: never the token. */
  readonly name: string;
}

export interface Authenticator {
  /** @throws PlatformError `TOKEN_MISSING`, `TOKEN_INVALID`. */
  authenticate(request: AuthRequest): Identity;
}

/** The one token of the daemon. Compared in constant time over digests, so that its length shows neither. */
export function createTokenAuthenticator(options: { readonly token: string }): Authenticator {
  const expected = digest(options.token);
  return {
    authenticate(request) {
      if (request.listener === "unix") return { name: "local" };
      const match = /^Bearer +([\u0021-\u007e]{1,512})$/i.exec(request.authorization ?? "");
      if (request.authorization === undefined) throw new PlatformError("TOKEN_MISSING", "This listener demands a bearer token");
      if (match?.[1] === undefined || !timingSafeEqual(digest(match[1]), expected)) {
        throw new PlatformError("TOKEN_INVALID", "The bearer token is not known to the daemon");
      }
      return { name: "token" };
    },
  };
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

export interface SiteHeaders {
  readonly host: string | undefined;
  readonly origin: string | undefined;
}

/** @throws PlatformError `ORIGIN_DENIED` */
export function requireTrustedSite(headers: SiteHeaders, allowedHosts: readonly string[]): void {
  const host = parseHostName(headers.host);
  if (host === undefined || !isTrustedHost(host, allowedHosts)) {
    throw new PlatformError(
      "ORIGIN_DENIED",
      `The host name ${JSON.stringify((headers.host ?? "").slice(0, 80))} is not one of this daemon's`,
    );
  }
  if (headers.origin === undefined) return;
  const origin = URL.canParse(headers.origin) ? new URL(headers.origin) : undefined;
  if (origin?.host !== headers.host?.toLowerCase()) {
    throw new PlatformError("ORIGIN_DENIED", "Web pages of other sites may not use this API");
  }
}

function parseHostName(host: string | undefined): string | undefined {
  if (host === undefined || !/^[A-Za-z0-9.\-_[\]:]{1,260}$/.test(host)) return undefined;
  const match = /^(\[[0-9A-Fa-f:.]+\]|[^:[\]]+)(:\d{1,5})?$/.exec(host);
  return match?.[1]?.replace(/^\[|\]$/g, "").toLowerCase();
}

function isTrustedHost(host: string, allowedHosts: readonly string[]): boolean {
  return isIP(host) !== 0 || host === "localhost" || allowedHosts.some((allowed) => allowed.toLowerCase() === host);
}

/** IPv4 and IPv6 addresses and networks as users write them. Pure. */
import { invalidField } from "@fluxvm/core";

/** An IPv4 address in dotted form. */
export function isIpv4(text: string): boolean {
  return parseIpv4(text) !== undefined;
}

/** The network in canonical form. @throws PlatformError `REQUEST_INVALID` at `path`. */
export function parseCidr(text: string, path: string): string {
  const [address = "", length, ...rest] = text.split("/");
  const bytes = parseIpv4(address) ?? parseIpv6(address);
  if (bytes === undefined || rest.length > 0) throw invalidField(path, `${quote(text)} is no network: write 10.0.0.0/8 or fd00::/8`);
  const bits = bytes.length * 8;
  const prefix = length === undefined ? bits : /^(0|[1-9]\d{0,2})$/.test(length) ? Number(length) : Number.NaN;
  if (!(prefix <= bits)) throw invalidField(path, `${quote(text)} has a prefix length that is not between 0 and ${bits}`);
  const masked = bytes.map((byte, i) => byte & maskOf(prefix - i * 8));
  const network = `${formatAddress(masked)}/${prefix}`;
  if (masked.some((byte, i) => byte !== bytes[i])) throw invalidField(path, `${quote(text)} has host bits set, did you mean ${network}`);
  return network;
}

function maskOf(bits: number): number {
  if (bits >= 8) return 255;
  return bits <= 0 ? 0 : (255 << (8 - bits)) & 255;
}

function parseIpv4(text: string): readonly number[] | undefined {
  const parts = text.split(".");
  if (parts.length !== 4 || !parts.every((part) => /^(0|[1-9]\d{0,2})$/.test(part) && Number(part) <= 255)) return undefined;
  return parts.map(Number);
}

/** By the URL parser, which knows every way to write one; its answer is the canonical form. */
function parseIpv6(text: string): readonly number[] | undefined {
  if (!/^[0-9A-Fa-f:.]{2,45}$/.test(text) || !text.includes(":")) return undefined;
  const url = URL.parse(`http://[${text}]/`);
  if (url === null) return undefined;
  const [head = "", tail] = url.hostname.slice(1, -1).split("::");
  const before = head === "" ? [] : head.split(":");
  const after = tail === undefined || tail === "" ? [] : tail.split(":");
  const zeros = Array.from({ length: 8 - before.length - after.length }, () => "0");
  return [...before, ...zeros, ...after].map((group) => Number.parseInt(group, 16)).flatMap((group) => [group >> 8, group & 255]);
}

function formatAddress(bytes: readonly number[]): string {
  if (bytes.length === 4) return bytes.join(".");
  const groups = Array.from({ length: 8 }, (_, i) => (((bytes[i * 2] ?? 0) << 8) | (bytes[i * 2 + 1] ?? 0)).toString(16));
  return new URL(`http://[${groups.join(":")}]/`).hostname.slice(1, -1);
}

function quote(text: string): string {
  return JSON.stringify(text.slice(0, 80));
}

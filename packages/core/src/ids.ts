/**
 * Branded ids with a visible prefix, so that an image's id can never be passed where a VM's is needed and a log line
 * tells what it speaks of. Form: `<prefix>-` and 16 characters of Crockford-like base 32 (80 random bits).
 */
import { PlatformError, type PlatformErrorOptions } from "./errors/platform-error.ts";
import type { Random } from "./random.ts";

declare const brand: unique symbol;
type Id<Name extends string> = string & { readonly [brand]: Name };

export type VmId = Id<"vm">;
export type ImageId = Id<"img">;
export type KernelId = Id<"krn">;
export type ExecId = Id<"exec">;
/** Names a state directory; everything made on the host carries it. */
export type InstanceId = Id<"inst">;
export type RequestId = Id<"req">;

const PREFIXES = { vm: "vm", img: "img", krn: "krn", exec: "exec", inst: "inst", req: "req" } as const;
type IdKind = keyof typeof PREFIXES;
interface IdTypes {
  vm: VmId;
  img: ImageId;
  krn: KernelId;
  exec: ExecId;
  inst: InstanceId;
  req: RequestId;
}

const ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz";
const BODY_LENGTH = 16;
const BODY = /^[0-9a-hjkmnp-tv-z]{16}$/;

export function newId<K extends IdKind>(kind: K, random: Random): IdTypes[K] {
  const bytes = random.bytes(BODY_LENGTH);
  let body = "";
  for (const byte of bytes) body += ALPHABET[byte & 31];
  return `${PREFIXES[kind]}-${body}` as IdTypes[K]; // the only place that makes the brand, besides parseId
}

export function isId<K extends IdKind>(kind: K, value: string): value is IdTypes[K] {
  const prefix = `${PREFIXES[kind]}-`;
  return value.startsWith(prefix) && BODY.test(value.slice(prefix.length));
}

/** @throws PlatformError `REQUEST_INVALID` when `value` is not an id of that kind. */
export function parseId<K extends IdKind>(kind: K, value: string, options: PlatformErrorOptions = {}): IdTypes[K] {
  if (isId(kind, value)) return value;
  throw new PlatformError("REQUEST_INVALID", `Not a ${kind} id: ${JSON.stringify(value.slice(0, 80))}`, options);
}

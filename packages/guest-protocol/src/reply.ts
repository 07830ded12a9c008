/** Typed access to the JSON a guest sends. Everything is checked: a wrong shape is `AGENT_PROTOCOL`. */
import { toGuestFailure } from "@fluxvm/guest-channel";
import { MESSAGE_KIND, violation, type Message } from "./message.ts";

const MAX_TEXT = 8192;

/** An object of the guest's. */
export class Reply {
  readonly #fields: Readonly<Record<string, unknown>>;

  constructor(value: unknown) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) throw violation("a reply that is no object");
    this.#fields = value as Record<string, unknown>; // checked just now
  }

  has(name: string): boolean {
    return this.#fields[name] !== undefined && this.#fields[name] !== null;
  }

  text(name: string): string {
    const value = this.#fields[name];
    if (typeof value !== "string" || value.length > MAX_TEXT) throw violation(`a wrong ${name}`);
    return value;
  }

  optionalText(name: string): string | undefined {
    return this.has(name) ? this.text(name) : undefined;
  }

  integer(name: string): number {
    const value = this.#fields[name];
    if (typeof value !== "number" || !Number.isSafeInteger(value)) throw violation(`a wrong ${name}`);
    return value;
  }

  count(name: string): number {
    const value = this.integer(name);
    if (value < 0) throw violation(`a wrong ${name}`);
    return value;
  }

  flag(name: string): boolean {
    const value = this.#fields[name];
    if (typeof value !== "boolean") throw violation(`a wrong ${name}`);
    return value;
  }

  oneOf<T extends string>(name: string, allowed: readonly T[]): T {
    const found = allowed.find((a) => a === this.#fields[name]);
    if (found === undefined) throw violation(`a wrong ${name}`);
    return found;
  }

  object(name: string): Reply {
    return new Reply(this.#fields[name]);
  }

  list<T>(name: string, bound: number, read: (item: unknown) => T): readonly T[] {
    const value = this.#fields[name];
    if (!Array.isArray(value) || value.length > bound) throw violation(`a wrong ${name}`);
    return value.map((item) => read(item));
  }
}

/** The JSON of a message. @throws PlatformError the guest's error, if it is one. */
export function parseReply(message: Message | undefined): Reply {
  if (message === undefined) throw violation("a stream without a reply");
  if (message.kind !== MESSAGE_KIND.json) throw violation("bytes where a reply belongs");
  let value: unknown;
  try {
    value = JSON.parse(message.body.toString("utf8"));
  } catch (cause) {
    throw violation(`a reply that is no JSON (${cause instanceof Error ? cause.message : "unreadable"})`);
  }
  const reply = new Reply(value);
  if (reply.has("error")) throw toGuestFailure((value as { error: unknown }).error); // it is an object: checked just now
  return reply;
}

export function readText(item: unknown): string {
  if (typeof item !== "string" || item.length > 128 * 1024) throw violation("a wrong text in a list");
  return item;
}

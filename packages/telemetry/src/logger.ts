/**
 * Structured logs, one JSON object a line.
 *
 * The message is constant and lower-case; everything that varies is a field (`vmId`, `durationMs`), spelt the same way
 * across the product. Secrets and guest data are never fields; the names under `REDACTED` are blanked all the same.
 * An `err` field takes anything thrown and shows its whole chain of causes and a `PlatformError`'s details: this is
 * the one place where those may appear.
 */
import { isPlatformError } from "@fluxvm/core";
import pino from "pino";

export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export type LogFields = Readonly<Record<string, unknown>>;

export interface LogMethod {
  (message: string): void;
  (fields: LogFields, message: string): void;
}

export interface Logger {
  readonly trace: LogMethod;
  readonly debug: LogMethod;
  readonly info: LogMethod;
  readonly warn: LogMethod;
  readonly error: LogMethod;
  readonly fatal: LogMethod;
  /** A logger that adds `fields` to each of its lines. */
  child(fields: LogFields): Logger;
}

/** Where lines go: a file descriptor, a file that is appended to, or anything with `write`. */
export type LogDestination = { readonly fd: number } | { readonly file: string } | { write(line: string): void };

export interface LoggerOptions {
  readonly level: LogLevel;
  /** Default: standard error. */
  readonly destination?: LogDestination;
  /** Fields of every line. */
  readonly fields?: LogFields;
}

const REDACTED = ["token", "password", "secret", "authorization", "*.token", "*.password", "*.secret", "*.authorization"];
const MAX_CAUSES = 8;

export function createLogger(options: LoggerOptions): Logger {
  const logger = pino(
    {
      level: options.level,
      base: options.fields ?? {},
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: (thrown: unknown) => describeError(thrown) },
      redact: { paths: REDACTED, censor: "[redacted]" },
    },
    openDestination(options.destination ?? { fd: 2 }),
  );
  return logger;
}

/** Drops every line. */
export function createNullLogger(): Logger {
  const drop = (): void => undefined;
  const logger: Logger = { trace: drop, debug: drop, info: drop, warn: drop, error: drop, fatal: drop, child: () => logger };
  return logger;
}

/** Synchronous, so that the lines before a crash are never lost. */
function openDestination(destination: LogDestination): pino.DestinationStream {
  if ("write" in destination) return destination;
  const target = "fd" in destination ? { fd: destination.fd } : { dest: destination.file, append: true, mkdir: true };
  return pino.destination({ ...target, sync: true });
}

/** What was thrown, as plain data: type, message, stack, code and details, with its causes, at most `MAX_CAUSES` deep. */
export function describeError(thrown: unknown, depth = 0): Readonly<Record<string, unknown>> {
  if (!(thrown instanceof Error)) return { message: String(thrown) };
  const code: unknown = "code" in thrown ? thrown.code : undefined;
  return {
    type: thrown.name,
    message: thrown.message,
    ...(code === undefined ? {} : { code }),
    ...(isPlatformError(thrown) ? { class: thrown.class, details: thrown.details } : {}),
    ...(depth === 0 && !isPlatformError(thrown) ? { stack: thrown.stack } : {}),
    ...(thrown.cause === undefined || depth >= MAX_CAUSES ? {} : { cause: describeError(thrown.cause, depth + 1) }),
  };
}

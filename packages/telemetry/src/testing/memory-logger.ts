/** A logger whose lines a test can read back. */
import { createLogger, type Logger } from "../logger.ts";

export type LogLine = Readonly<Record<string, unknown>> & { readonly level: string; readonly msg: string };

export function createMemoryLogger(): { readonly logger: Logger; readonly lines: LogLine[] } {
  const lines: LogLine[] = [];
  const write = (line: string): void => {
    lines.push(JSON.parse(line) as LogLine); // pino writes objects with level and msg
  };
  return { logger: createLogger({ level: "trace", destination: { write } }), lines };
}

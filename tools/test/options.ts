/** The command line of `npm test`. */
import { parseArgs } from "node:util";

export const PARTS = ["check", "unit", "native", "int", "e2e"] as const;
export type Part = (typeof PARTS)[number];

export interface TestOptions {
  readonly parts: readonly Part[];
  readonly grep: string | undefined;
  /** Parts of paths: only test files that hold one of them. */
  readonly files: readonly string[];
  readonly help: boolean;
}

export const USAGE = `Usage: npm test -- [options] [part of a test file's path ...]

  --only ${PARTS.join("|")}   one tier; may be given several times
  --grep PATTERN              only tests whose name matches
`;

/** @throws Error with a message for the user. */
export function parseOptions(argv: readonly string[]): TestOptions {
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: { only: { type: "string", multiple: true }, grep: { type: "string" }, help: { type: "boolean", short: "h" } },
  });
  const only = values.only ?? [];
  const unknown = only.find((name) => !isPart(name));
  if (unknown !== undefined) throw new Error(`--only ${unknown}: must be one of ${PARTS.join(", ")}`);
  const files = positionals;
  const narrowed = files.length > 0 || values.grep !== undefined ? PARTS.filter((p) => p !== "check" && p !== "native") : PARTS;
  const parts = only.length > 0 ? PARTS.filter((p) => only.includes(p)) : narrowed;
  return { parts, grep: values.grep, files, help: values.help ?? false };
}

function isPart(name: string): name is Part {
  return (PARTS as readonly string[]).includes(name); // widened to ask
}

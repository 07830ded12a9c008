/** Compares what the generators make with what is there, and writes what differs. */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Generator } from "./generator.ts";

export interface Drift {
  readonly generator: string;
  readonly path: string;
}

/** Files that differ from what their generator makes. With `write` they are brought up to date. */
export async function runGenerators(
  root: string,
  generators: readonly Generator[],
  options: { readonly write: boolean },
): Promise<Drift[]> {
  const drifts: Drift[] = [];
  for (const generator of generators) {
    for (const [path, text] of Object.entries(await generator.generate())) {
      const file = join(root, path);
      if (existsSync(file) && readFileSync(file, "utf8") === text) continue;
      drifts.push({ generator: generator.name, path });
      if (!options.write) continue;
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, text);
    }
  }
  return drifts;
}

/** The version of this build, from its package. */
import { readFileSync } from "node:fs";
import { join } from "node:path";

export function readVersion(): string {
  const manifest = JSON.parse(readFileSync(join(import.meta.dirname, "..", "package.json"), "utf8")) as { version: string }; // our own file
  return manifest.version;
}

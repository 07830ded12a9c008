/** Finds the test files of each tier. */
import { globSync } from "node:fs";
import { join, relative } from "node:path";

export type Tier = "unit" | "int" | "e2e";

const PATTERNS: Readonly<Record<Tier, readonly string[]>> = {
  unit: [
    "packages/*/src/**/*.test.ts",
    "apps/*/src/**/*.test.ts",
    "sdk/typescript/src/**/*.test.ts",
    "tools/**/*.test.ts",
    "bench/**/*.test.ts",
  ],
  int: [
    "packages/*/src/**/*.int.test.ts",
    "apps/*/src/**/*.int.test.ts",
    "sdk/typescript/src/**/*.int.test.ts",
    "tools/**/*.int.test.ts",
    "test/integration/**/*.test.ts",
  ],
  e2e: ["test/e2e/**/*.test.ts"],
};

/** Paths relative to `root`, sorted; `only` keeps those whose path holds one of its words. */
export function findTestFiles(root: string, tier: Tier, only: readonly string[] = []): string[] {
  const found = globSync([...PATTERNS[tier]], { cwd: root, exclude: (name) => name === "node_modules" });
  const files = [...new Set(found.map((path) => relative(root, join(root, path))))].sort();
  const ofTier = tier === "unit" ? files.filter((path) => !path.endsWith(".int.test.ts")) : files;
  return only.length === 0 ? ofTier : ofTier.filter((path) => only.some((word) => path.includes(word)));
}

/**
 * The tree that tidy looks at: every file that git tracks or would track, with text and syntax tree read at most once.
 * A folder that is no git work tree (the tests' planted trees) is walked instead.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { parseSource, type Source } from "./source.ts";

const SKIPPED_FOLDERS = new Set(["node_modules", ".git", "target", ".cache", "dist"]);
const TEXT = /\.(ts|js|mjs|json|md|rs|toml|sh|c|h|S|s|ld|yaml|yml|txt|service|nft|lock)$|(^|\/)(\.[a-z]+|run|fluxctl|LICENSE|Makefile)$/;

export interface Problem {
  readonly rule: string;
  readonly path: string;
  /** From 1; 0 when the whole file or its absence is meant. */
  readonly line: number;
  readonly message: string;
}

export type Rule = (tree: Tree) => Iterable<Problem>;

export class Tree {
  readonly root: string;
  readonly paths: readonly string[];
  readonly #known = new Set<string>();
  readonly #texts = new Map<string, string>();
  readonly #sources = new Map<string, Source>();

  constructor(root: string) {
    this.root = root;
    this.paths = existsSync(join(root, ".git")) ? listTracked(root) : listFiles(root, "");
    for (const path of this.paths)
      for (let known = path; known !== "." && !this.#known.has(known); known = dirname(known)) this.#known.add(known);
  }

  /** Whether a file or folder is part of the tree; a folder without files is not. */
  has(path: string): boolean {
    return this.#known.has(path.replace(/\/$/, ""));
  }

  sizeBytes(path: string): number {
    return statSync(join(this.root, path)).size;
  }

  text(path: string): string {
    let text = this.#texts.get(path);
    if (text === undefined) this.#texts.set(path, (text = readFileSync(join(this.root, path), "utf8")));
    return text;
  }

  json(path: string): Record<string, unknown> {
    return JSON.parse(this.text(path)) as Record<string, unknown>; // package.json files are objects
  }

  source(path: string): Source {
    let source = this.#sources.get(path);
    if (source === undefined) this.#sources.set(path, (source = parseSource(path, this.text(path))));
    return source;
  }

  /** Paths of TypeScript sources, declarations left out. */
  get sources(): readonly string[] {
    return this.paths.filter((p) => p.endsWith(".ts") && !p.endsWith(".d.ts"));
  }

  get texts(): readonly string[] {
    return this.paths.filter((p) => TEXT.test(p));
  }

  /** Folders with a package.json under packages/, apps/ and sdk/. */
  get packages(): readonly string[] {
    return this.paths.filter((p) => /^(packages|apps|sdk)\/[^/]+\/package\.json$/.test(p)).map((p) => p.slice(0, -"/package.json".length));
  }
}

function listTracked(root: string): string[] {
  const output = execFileSync("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 1 << 26,
  });
  // a file removed but not yet staged is still listed
  return output.split("\0").filter((p) => p !== "" && existsSync(join(root, p)) && !statSync(join(root, p)).isDirectory());
}

function listFiles(root: string, folder: string): string[] {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = folder === "" ? entry.name : `${folder}/${entry.name}`;
    if (!entry.isDirectory()) return [path];
    return SKIPPED_FOLDERS.has(entry.name) ? [] : listFiles(root, path);
  });
}

/** Tests and what is made for tests: other rules hold there. */
export function isTestPath(path: string): boolean {
  return path.endsWith(".test.ts") || /(^|\/)src\/testing\//.test(path) || /^(test|bench)\//.test(path);
}

/** `packages/core` of `packages/core/src/x.ts`; `undefined` outside packages, apps and sdk. */
export function packageOf(path: string): string | undefined {
  return /^(?:packages|apps|sdk)\/[^/]+(?=\/)/.exec(path)?.[0];
}

export function isProductPath(path: string): boolean {
  return packageOf(path) !== undefined && !isTestPath(path);
}

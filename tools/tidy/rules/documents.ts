/**
 * Documents that can fail: each path a document names must exist, and so must the target of each relative link.
 * A line (or table row) that says "Planned" may name what is still to come. Paths with `*`, `<` or `…` are patterns and
 * are checked up to the folder before the pattern.
 */
import { posix } from "node:path";
import type { Problem, Tree } from "../tree.ts";

const NAMED_PATH = /(?<![\w./-])(?:packages|apps|native|sdk|docs|tools|test|bench|deploy|bin)\/[\w.*<>…/-]+/g;
const LINK = /\]\((?!https?:|#|mailto:)([^)\s#]+)(?:#[^)]*)?\)/g;

const CRATE_MAP = "docs/architecture/crate-map.md";
/** The reference's workspace members and SDKs, each of which has its place here. */
const REFERENCE_CRATES =
  "core cgroup storage network image qemu cloud-hypervisor firecracker hypervisor guest-protocol guest-agent vsock-client procbox scheduler api agent kube microvm container-protocol container-agent container-client containerd-shim intelligence"
    .split(" ")
    .map((name) => `fluxvm-${name}`)
    .concat("fluxctl", "SDK, Python", "SDK, Go");

/** A row for each, with a place; `checkDocuments` looks whether the place exists. */
export function* checkCrateMap(tree: Tree): Generator<Problem> {
  if (!tree.has(CRATE_MAP)) return;
  const rows = tree.text(CRATE_MAP).split("\n");
  for (const crate of REFERENCE_CRATES) {
    const isPlaced = rows.some((row) => (row.startsWith(`| ${crate} `) || row.startsWith(`| ${crate}|`)) && /`\w+\/[\w/-]+`/.test(row));
    if (!isPlaced) yield { rule: "crate-map", path: CRATE_MAP, line: 0, message: `no row with a place for ${crate}` };
  }
}

export function* checkDocuments(tree: Tree): Generator<Problem> {
  for (const path of tree.paths.filter((p) => p.endsWith(".md"))) {
    for (const { rule, target, line } of [...listLines(tree.text(path))].flatMap((l) => listPromises(path, l))) {
      if (!tree.has(target)) yield { rule, path, line, message: `${target} does not exist (not yet there? say "Planned")` };
    }
  }
}

/** What a line says is there. */
function listPromises(path: string, { text, line, fenced }: Line): { rule: string; target: string; line: number }[] {
  const names = fenced === "" || fenced === "mermaid" ? listNames(text) : [];
  const links = fenced === "" ? listLinks(path, text) : [];
  return [
    ...names.map((target) => ({ rule: "document-path", target, line })),
    ...links.map((target) => ({ rule: "document-link", target, line })),
  ];
}

interface Line {
  readonly text: string;
  readonly line: number;
  /** The language of the fence around it, "plain" without one, empty outside fences. */
  readonly fenced: string;
}

/** The lines that promise something: fences themselves and what is marked Planned are left out. */
function* listLines(text: string): Generator<Line> {
  let fenced = "";
  for (const [i, line] of text.split("\n").entries()) {
    const fence = /^\s*```(\w*)/.exec(line);
    if (fence !== null) fenced = fenced === "" ? fence[1] || "plain" : "";
    else if (!/\bPlanned\b/.test(line)) yield { text: line, line: i + 1, fenced };
  }
}

function listLinks(path: string, line: string): string[] {
  const targets = [...line.matchAll(LINK)].map((m) => m[1] ?? "");
  return targets.map((t) => (t.startsWith("/") ? t.slice(1) : posix.join(posix.dirname(path), t)));
}

/** Repository paths in code spans; in a diagram, anywhere in the line. */
function listNames(line: string): string[] {
  const spans = line.includes("`") ? [...line.matchAll(/`([^`]+)`/g)].map((m) => m[1] ?? "") : [];
  const texts = /^\s*(\w+\s*[[({]|C4|System|Container|Component|subgraph|Rel)/.test(line) && spans.length === 0 ? [line] : spans;
  return texts.flatMap((text) => [...text.matchAll(NAMED_PATH)].map((m) => cutPattern(m[0])));
}

function cutPattern(path: string): string {
  const at = path.search(/[*<…]|\.\.\./);
  const cut = at === -1 ? path : path.slice(0, path.lastIndexOf("/", at));
  return cut.replace(/[./]+$/, "");
}

const CATALOGUE = "packages/core/src/errors/catalogue.ts";
/** Words in capitals that are no error codes: environment variables. */
const ENVIRONMENT = /^(FLUXVM|RUSTUP|CARGO|NODE)_/;

/** Error codes and metrics that a document names must be declared. */
export function* checkDeclaredWords(tree: Tree): Generator<Problem> {
  const isDeclared = readDeclaredWords(tree);
  for (const path of tree.paths.filter((p) => p.endsWith(".md"))) {
    const prose = [...listLines(tree.text(path))].filter((l) => l.fenced === "");
    for (const { word, line } of prose.flatMap(listWords)) {
      const message = `${word} is no error code or metric of ours`;
      if (!isDeclared(word)) yield { rule: "document-word", path, line, message };
    }
  }
}

function readDeclaredWords(tree: Tree): (word: string) => boolean {
  const codes = tree.has(CATALOGUE) ? new Set([...tree.text(CATALOGUE).matchAll(/^ {2}([A-Z][A-Z0-9_]+):/gm)].map((m) => m[1])) : undefined;
  const owners = tree.paths.filter((p) => p.endsWith("/src/metrics.ts"));
  const metrics = new Set(owners.flatMap((p) => [...tree.text(p).matchAll(/"(fluxvm_\w+)"/g)].map((m) => m[1])));
  return (word) => (word.startsWith("fluxvm_") ? metrics.has(word) : codes === undefined || codes.has(word) || ENVIRONMENT.test(word));
}

function listWords({ text, line }: Line): { readonly word: string; readonly line: number }[] {
  const words = text.matchAll(/`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|fluxvm_\w+)(?:\{[^`]*\})?`/g);
  return [...words].map(([, word = ""]) => ({ word, line }));
}

/** What code may touch outside itself: the process, the clock, chance, timers, the names of backends. */
import { BACKEND_NAMES, layerName, PURE_PACKAGES } from "../layers.ts";
import { dottedName, isNode, listNodes, nameOf, walk, type AstNode, type Source } from "../source.ts";
import { isProductPath, isTestPath, packageOf, type Problem, type Tree } from "../tree.ts";

const ENTRY = /^apps\/[^/]+\/src\/(main|wire)\.ts$/;
const PROCESS_MEMBERS = new Set([
  "env",
  "argv",
  "exit",
  "on",
  "once",
  "addListener",
  "prependListener",
  "exitCode",
  "execArgv",
  "reallyExit",
]);
const IMPURE_CALLS = new Set(["Date.now", "Math.random", "performance.now", "setTimeout", "setInterval", "setImmediate"]);
const RANDOM_SOURCES = new Set(["getRandomValues", "randomUUID", "randomBytes", "randomInt"]);
/** Names that mean nothing but a backend; the others count only beside something called a backend. */
const UNMISTAKABLE = new Set(["qemu", "cloud-hypervisor", "firecracker"]);

export function* checkProcess(tree: Tree): Generator<Problem> {
  for (const path of tree.sources) {
    if (!isProductPath(path) || ENTRY.test(path)) continue;
    const source = tree.source(path);
    for (const [node, member] of findProcessUses(source)) {
      yield {
        rule: "process",
        path,
        line: source.lineOf(node.start),
        message: `only main.ts and wire.ts of an app touch process.${member}`,
      };
    }
  }
}

function findProcessUses(source: Source): [AstNode, string][] {
  const found: [AstNode, string][] = [];
  walk(source.program, (node) => {
    if (node.type === "MemberExpression") {
      const name = dottedName(node).replace(/^globalThis\./, "");
      const member = name.startsWith("process.") ? name.slice("process.".length) : "";
      if (PROCESS_MEMBERS.has(member)) found.push([node, member]);
    }
    if (node.type === "ImportDeclaration" && nameOf(node["source"]) === "node:process") {
      for (const specifier of listNodes(node["specifiers"])) {
        const member = nameOf(specifier["imported"]);
        if (PROCESS_MEMBERS.has(member)) found.push([node, member]);
      }
    }
  });
  return found;
}

export function* checkPurity(tree: Tree): Generator<Problem> {
  for (const path of tree.sources) {
    const folder = packageOf(path);
    if (folder === undefined || isTestPath(path) || !folder.startsWith("packages/") || !PURE_PACKAGES.has(layerName(folder))) continue;
    const source = tree.source(path);
    for (const [node, what] of findImpureUses(source)) {
      if (path === "packages/core/src/random.ts" && RANDOM_SOURCES.has(what)) continue;
      yield {
        rule: "purity",
        path,
        line: source.lineOf(node.start),
        message: `${layerName(folder)} may not use ${what}: take a clock or random`,
      };
    }
  }
}

function findImpureUses(source: Source): [AstNode, string][] {
  const found: [AstNode, string][] = [];
  walk(source.program, (node) => {
    if (node.type === "NewExpression" && nameOf(node["callee"]) === "Date" && listNodes(node["arguments"]).length === 0) {
      found.push([node, "new Date()"]);
    }
    if (node.type === "ImportSpecifier" && RANDOM_SOURCES.has(nameOf(node["imported"]))) found.push([node, nameOf(node["imported"])]);
    if (node.type === "MemberExpression" && IMPURE_CALLS.has(dottedName(node))) found.push([node, dottedName(node)]);
    if (node.type !== "CallExpression") return;
    const callee = dottedName(node["callee"]).replace(/^globalThis\./, "");
    const last = callee.split(".").at(-1) ?? "";
    if (/^set(Timeout|Interval|Immediate)$/.test(callee)) found.push([node, callee]);
    if (callee.includes("crypto.") && RANDOM_SOURCES.has(last)) found.push([node, last]);
  });
  return found;
}

export function* checkIntervals(tree: Tree): Generator<Problem> {
  for (const path of tree.sources) {
    const source = tree.source(path);
    if (!source.text.includes("setInterval")) continue;
    const lines: number[] = [];
    walk(source.program, (node) => {
      if (node.type === "Identifier" && node["name"] === "setInterval") lines.push(source.lineOf(node.start));
    });
    for (const line of lines) yield { rule: "interval", path, line, message: "no setInterval: wait again after each round" };
  }
}

export function* checkBackendNames(tree: Tree): Generator<Problem> {
  for (const path of tree.sources) {
    if (!isProductPath(path) || path.startsWith("packages/backend-")) continue;
    const source = tree.source(path);
    const lines: number[] = [];
    walk(source.program, (node, ancestors) => {
      if (comparesBackend(node, ancestors.at(-1), source.text)) lines.push(source.lineOf(node.start));
    });
    for (const line of lines) yield { rule: "backend-name", path, line, message: "choose by capability, not by a backend's name" };
  }
}

function comparesBackend(node: AstNode, parent: AstNode | undefined, text: string): boolean {
  const textOf = (value: unknown): string => (isNode(value) ? text.slice(value.start, value.end) : "");
  const isName = (value: unknown, other: string): boolean => {
    const name = isNode(value) && value.type === "Literal" ? nameOf(value) : "";
    return UNMISTAKABLE.has(name) || (BACKEND_NAMES.includes(name) && /backend/i.test(other));
  };
  if (node.type === "SwitchCase") return isName(node["test"], textOf(parent?.["discriminant"]));
  if (node.type !== "BinaryExpression" || !/^[!=]==?$/.test(String(node["operator"]))) return false;
  return isName(node["left"], textOf(node["right"])) || isName(node["right"], textOf(node["left"]));
}

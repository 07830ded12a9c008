/** Who may import whom: layers, no deep or undeclared imports, no cycles, `./testing` for tests, child processes for host. */
import { posix } from "node:path";
import { decideImport, layerName, LAYERS, PURE_PACKAGES } from "../layers.ts";
import { listNodes, nameOf } from "../source.ts";
import { isProductPath, isTestPath, packageOf, type Problem, type Tree } from "../tree.ts";

const SCOPE = "@fluxvm/";
const IMPURE_MODULES = /^node:(fs|net|http|https|http2|tls|dgram|dns|timers|child_process|worker_threads|os|cluster)(\/|$)/;

interface Edge {
  readonly path: string;
  readonly line: number;
  readonly folder: string;
  readonly specifier: string;
  readonly isType: boolean;
}

function* listEdges(tree: Tree): Generator<Edge> {
  for (const path of tree.sources) {
    const folder = packageOf(path);
    if (folder === undefined) continue;
    for (const { specifier, line, isType } of tree.source(path).imports) yield { path, line, folder, specifier, isType };
  }
}

export function* checkLayers(tree: Tree): Generator<Problem> {
  for (const folder of tree.packages) {
    if (folder.startsWith("sdk/") && folder !== "sdk/typescript") continue;
    if (LAYERS[layerName(folder)] === undefined) {
      yield { rule: "layers", path: `${folder}/package.json`, line: 0, message: `${layerName(folder)} is not in the layer table` };
    }
  }
  for (const { path, line, folder, specifier, isType } of listEdges(tree)) {
    if (!specifier.startsWith(SCOPE)) continue;
    const [to = "", ...rest] = specifier.slice(SCOPE.length).split("/");
    const from = layerName(folder);
    const inTest = isTestPath(path);
    if (inTest && rest[0] === "testing" && LAYERS[to] !== undefined) continue;
    const verdict = decideImport(from, to);
    if (verdict === "no") yield { rule: "layers", path, line, message: `${from} may not import ${to}` };
    if (verdict === "types" && !isType && !inTest) yield { rule: "layers", path, line, message: `${from} may import ${to} as types only` };
  }
}

export function* checkDeepImports(tree: Tree): Generator<Problem> {
  for (const { path, line, folder, specifier } of listEdges(tree)) {
    if (specifier.startsWith(".")) {
      const target = posix.join(posix.dirname(path), specifier);
      if (!target.startsWith(`${folder}/`)) yield { rule: "deep-import", path, line, message: `${specifier} leaves the package` };
      continue;
    }
    if (!specifier.startsWith(SCOPE)) continue;
    const rest = specifier.slice(SCOPE.length).split("/").slice(1).join("/");
    if (rest === "testing") {
      const allowed = isTestPath(path) || folder === "packages/simulation";
      if (!allowed) yield { rule: "deep-import", path, line, message: `${specifier} is for tests` };
    } else if (rest !== "") yield { rule: "deep-import", path, line, message: `${specifier} reaches into a package; import its name` };
  }
}

export function* checkDeclaredImports(tree: Tree): Generator<Problem> {
  const root = tree.paths.includes("package.json") ? tree.json("package.json") : {};
  const shared = Object.keys((root["devDependencies"] as object | undefined) ?? {}); // a JSON object, as npm reads it
  for (const { path, line, folder, specifier } of listEdges(tree)) {
    if (specifier.startsWith(".") || specifier.startsWith("node:")) continue;
    const name = specifier
      .split("/")
      .slice(0, specifier.startsWith("@") ? 2 : 1)
      .join("/");
    const manifest = tree.json(`${folder}/package.json`);
    const own = { ...(manifest["dependencies"] as object | undefined), ...(manifest["devDependencies"] as object | undefined) }; // JSON objects
    const declared = manifest["name"] === name || name in own || (isTestPath(path) && (shared.includes(name) || name.startsWith(SCOPE)));
    if (!declared) yield { rule: "undeclared-import", path, line, message: `${name} is not in the dependencies of ${folder}/package.json` };
  }
}

export function* checkCycles(tree: Tree): Generator<Problem> {
  const packages = new Map<string, Set<string>>();
  const files = new Map<string, Set<string>>();
  for (const { path, folder, specifier, isType } of listEdges(tree)) {
    if (isTestPath(path)) continue;
    if (specifier.startsWith(".")) {
      if (!isType) addEdge(files, path, posix.join(posix.dirname(path), specifier));
    } else if (specifier.startsWith(SCOPE)) addEdge(packages, layerName(folder), specifier.slice(SCOPE.length).split("/")[0] ?? "");
  }
  for (const cycle of findCycles(packages))
    yield { rule: "cycle", path: `packages/${cycle[0]}`, line: 0, message: `packages: ${cycle.join(" -> ")}` };
  for (const cycle of findCycles(files)) yield { rule: "cycle", path: cycle[0] ?? "", line: 0, message: `files: ${cycle.join(" -> ")}` };
}

function addEdge(graph: Map<string, Set<string>>, from: string, to: string): void {
  if (from === to) return;
  graph.set(from, (graph.get(from) ?? new Set()).add(to));
}

/** One cycle for each back edge of a depth-first walk, first node repeated at the end. */
export function findCycles(graph: ReadonlyMap<string, ReadonlySet<string>>): string[][] {
  const cycles: string[][] = [];
  const done = new Set<string>();
  const stack: string[] = [];
  const visit = (node: string): void => {
    if (done.has(node)) return;
    const at = stack.indexOf(node);
    if (at !== -1) {
      cycles.push([...stack.slice(at), node]);
      return;
    }
    stack.push(node);
    for (const next of graph.get(node) ?? []) visit(next);
    stack.pop();
    done.add(node);
  };
  for (const node of graph.keys()) visit(node);
  return cycles;
}

export function* checkNodeModules(tree: Tree): Generator<Problem> {
  for (const { path, line, folder, specifier } of listEdges(tree)) {
    const name = layerName(folder);
    const mayStartProcesses = name === "host" || path.endsWith(".int.test.ts") || path.includes("/src/testing/");
    if (specifier === "node:child_process" && !mayStartProcesses) {
      yield { rule: "child-process", path, line, message: "only packages/host imports node:child_process" };
    } else if (PURE_PACKAGES.has(name) && !isTestPath(path) && IMPURE_MODULES.test(specifier)) {
      yield { rule: "purity", path, line, message: `${name} may not import ${specifier}: take a port` };
    }
  }
}

/** What an import does beside giving names cannot be seen where it matters: the wiring. */
export function* checkSideEffects(tree: Tree): Generator<Problem> {
  for (const path of tree.sources.filter(isProductPath)) {
    const source = tree.source(path);
    for (const node of listNodes(source.program["body"])) {
      const isBare = node.type === "ImportDeclaration" && listNodes(node["specifiers"]).length === 0 && node["importKind"] !== "type";
      const message = `${nameOf(node["source"])} is imported for what it does: call it from wire.ts`;
      if (isBare) yield { rule: "side-effect", path, line: source.lineOf(node.start), message };
    }
  }
}

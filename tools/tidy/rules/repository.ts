/** The repository as a whole: package manifests, READMEs, tests left out, words and sizes that do not belong in it. */
import { isNode, listNodes, dottedName, nameOf, walk } from "../source.ts";
import { packageOf, type Problem, type Tree } from "../tree.ts";

const MAX_README_LINES = 60;
const MAX_FILE_BYTES = 1 << 20;
// put together here, so that this file does not hold what it looks for
const UNFINISHED = new RegExp(`\\b(${["TO-DO", "FIX-ME", "XX-X"].map((word) => word.replace("-", "")).join("|")})\\b`);
const REGISTRY_HOSTS = new RegExp(
  [
    ["registry", "npmjs", "org"],
    ["registry", "yarnpkg", "com"],
    ["npmjs", "com"],
    ["static", "crates", "io"],
    ["index", "crates", "io"],
    ["pypi", "org"],
    ["files", "pythonhosted", "org"],
    ["deb", "debian", "org"],
    ["security", "debian", "org"],
    ["snapshot", "debian", "org"],
    ["proxy", "golang", "org"],
    ["repo1", "maven", "org"],
  ]
    .map((parts) => parts.join("\\."))
    .join("|"),
);
const MACHINE_PATHS = new RegExp(
  [
    ["work", "(main|shared|\\.library)\\b"],
    ["tmp", "w/"],
  ]
    .map((parts) => `/${parts.join("/")}`)
    .join("|"),
);

export function* checkManifests(tree: Tree): Generator<Problem> {
  for (const folder of tree.packages) {
    const path = `${folder}/package.json`;
    const manifest = tree.json(path);
    const exported = (manifest["exports"] ?? {}) as Record<string, unknown>; // checked below, key by key
    for (const [key, target] of Object.entries(exported)) {
      const allowed = (key === "." && target === "./src/index.ts") || (key === "./testing" && target === "./src/testing/index.ts");
      if (!allowed) yield { rule: "exports", path, line: 0, message: `exports only "." and "./testing", straight to sources; not ${key}` };
    }
    if (folder.startsWith("apps/") && Object.keys(exported).length > 0) {
      yield { rule: "exports", path, line: 0, message: "nothing imports an app: no exports" };
    }
    const expected = folder === "sdk/typescript" ? "@fluxvm/sdk" : `@fluxvm/${folder.split("/")[1]}`;
    if (manifest["name"] !== expected)
      yield { rule: "manifest", path, line: 0, message: `the package of this folder is called ${expected}` };
  }
}

export function* checkReadmes(tree: Tree): Generator<Problem> {
  const crates = tree.paths.filter((p) => /^native\/[^/]+\/Cargo\.toml$/.test(p)).map((p) => p.slice(0, -"/Cargo.toml".length));
  for (const folder of [...tree.packages, ...crates]) {
    const path = `${folder}/README.md`;
    if (!tree.paths.includes(path)) {
      yield { rule: "readme", path, line: 0, message: "each package has a README.md: what it is, what it is not, read order" };
      continue;
    }
    const lines = tree.text(path).split("\n").length - 1;
    if (lines > MAX_README_LINES) yield { rule: "readme", path, line: 0, message: `${lines} lines, ${MAX_README_LINES} at most` };
  }
}

export function* checkTestsRun(tree: Tree): Generator<Problem> {
  for (const path of tree.sources.filter((p) => p.endsWith(".test.ts"))) {
    const source = tree.source(path);
    const lines: number[] = [];
    walk(source.program, (node) => {
      if (node.type !== "CallExpression") return;
      const callee = dottedName(node["callee"]);
      const marked = /^(test|it|describe|suite)\.(only|skip|todo)$|^t\.todo$/.test(callee);
      const isTest = /^(test|it|describe|suite|t\.test)$/.test(callee);
      const options = isTest
        ? listNodes(node["arguments"]).flatMap((a) => (a.type === "ObjectExpression" ? listNodes(a["properties"]) : []))
        : [];
      const switched = options.some(
        (p) => /^(only|skip|todo)$/.test(nameOf(p["key"])) && isNode(p["value"]) && p["value"]["value"] !== false,
      );
      if (marked || switched) lines.push(source.lineOf(node.start));
    });
    for (const line of lines)
      yield { rule: "test-left-out", path, line, message: "no only, skip or todo: a gate function skips with a reason" };
  }
}

export function* checkWords(tree: Tree): Generator<Problem> {
  for (const path of tree.texts) {
    const lines = tree.text(path).split("\n");
    for (const [i, text] of lines.entries()) {
      const line = i + 1;
      if (UNFINISHED.test(text)) yield { rule: "unfinished", path, line, message: "finish it or file an issue" };
      if (REGISTRY_HOSTS.test(text))
        yield { rule: "registry-host", path, line, message: "no package registry's host name in the repository" };
      if (MACHINE_PATHS.test(text)) yield { rule: "machine-path", path, line, message: "a path of one machine" };
    }
  }
}

export function* checkSizes(tree: Tree): Generator<Problem> {
  for (const path of tree.paths) {
    const bytes = tree.sizeBytes(path);
    if (bytes > MAX_FILE_BYTES) yield { rule: "file-size", path, line: 0, message: `${bytes} bytes, ${MAX_FILE_BYTES} at most` };
  }
}

/** Loose files beside packages have no owner. */
export function* checkPlaces(tree: Tree): Generator<Problem> {
  for (const path of tree.sources) {
    const loose =
      /^(packages|apps|sdk)\/[^/]+$/.test(path) || (packageOf(path) !== undefined && !tree.has(`${packageOf(path)}/package.json`));
    if (loose) yield { rule: "place", path, line: 0, message: "sources live in a package with a package.json" };
  }
}

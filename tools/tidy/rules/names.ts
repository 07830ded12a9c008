/** What names inside a file must say: a quantity its unit; and acronyms are words. */
import { isNode, nameOf, walk, type AstNode } from "../source.ts";
import { isProductPath, type Problem, type Tree } from "../tree.ts";

/** Quantities of which nobody can guess the unit. Sizes are left out: formats have fields of that name, in bytes. */
const BARE_QUANTITY = /(^|[a-z_])(timeout|delay|duration|interval|deadline|ttl|memory|age|elapsed)$/i;
const SHOUTED_ACRONYM = /[A-Z]{2,}[a-z]|[a-z][A-Z]{2,}/;
const NAMED = new Set(["TSInterfaceDeclaration", "TSTypeAliasDeclaration", "ClassDeclaration", "FunctionDeclaration"]);

export function* checkUnits(tree: Tree): Generator<Problem> {
  for (const { path, line, node } of walkProduct(tree)) {
    const name = nameOfNumber(node);
    if (BARE_QUANTITY.test(name)) yield { rule: "unit", path, line, message: `${name}: of what? the unit comes last, as in ${name}Ms` };
  }
}

export function* checkAcronyms(tree: Tree): Generator<Problem> {
  for (const { path, line, node } of walkProduct(tree)) {
    const name = NAMED.has(node.type) ? nameOf(node["id"]) : "";
    if (SHOUTED_ACRONYM.test(name)) yield { rule: "acronym", path, line, message: `${name}: acronyms are words, as in VmId` };
  }
}

function* walkProduct(tree: Tree): Generator<{ readonly path: string; readonly line: number; readonly node: AstNode }> {
  for (const path of tree.sources.filter(isProductPath)) {
    const source = tree.source(path);
    const nodes: AstNode[] = [];
    walk(source.program, (node) => void nodes.push(node));
    for (const node of nodes) yield { path, line: source.lineOf(node.start), node };
  }
}

/** The name of a property, parameter or variable that is declared a number; empty for anything else. */
function nameOfNumber(node: AstNode): string {
  const annotation = node["typeAnnotation"];
  const type = isNode(annotation) ? annotation["typeAnnotation"] : undefined;
  if (!isNode(type) || type.type !== "TSNumberKeyword") return "";
  return node.type === "Identifier" ? nameOf(node) : nameOf(node["key"]);
}

/** A parsed TypeScript file: its imports, comments and a walk over its syntax tree (ESTree with TypeScript nodes, from oxc). */
import { parseSync, visitorKeys } from "oxc-parser";

export interface AstNode {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [key: string]: unknown;
}

export interface Import {
  readonly specifier: string;
  readonly line: number;
  /** Erased at run time: `import type`, or each name marked `type`. */
  readonly isType: boolean;
}

export interface Comment {
  readonly text: string;
  readonly startLine: number;
  readonly endLine: number;
}

export interface Source {
  readonly path: string;
  readonly text: string;
  readonly program: AstNode;
  readonly imports: readonly Import[];
  readonly comments: readonly Comment[];
  readonly errors: readonly string[];
  lineOf(offset: number): number;
}

const CHILD_KEYS: Readonly<Record<string, readonly string[]>> = visitorKeys;

export function parseSource(path: string, text: string): Source {
  const result = parseSync(path, text);
  const lineOf = makeLineIndex(text);
  const source: Source = {
    path,
    text,
    program: result.program as unknown as AstNode, // the same tree under a looser type
    imports: [],
    comments: result.comments.map((c) => ({ text: c.value, startLine: lineOf(c.start), endLine: lineOf(c.end) })),
    errors: result.errors.map((e) => e.message),
    lineOf,
  };
  return { ...source, imports: listImports(source) };
}

function makeLineIndex(text: string): (offset: number) => number {
  const starts = [0];
  for (let i = text.indexOf("\n"); i !== -1; i = text.indexOf("\n", i + 1)) starts.push(i + 1);
  return (offset) => {
    let low = 0;
    let high = starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((starts[middle] ?? 0) <= offset) low = middle;
      else high = middle - 1;
    }
    return low + 1;
  };
}

/** Visits each node with its ancestors, outermost first. */
export function walk(root: AstNode, visit: (node: AstNode, ancestors: readonly AstNode[]) => void): void {
  const ancestors: AstNode[] = [];
  const descend = (node: AstNode): void => {
    visit(node, ancestors);
    ancestors.push(node);
    for (const key of CHILD_KEYS[node.type] ?? []) for (const child of listNodes(node[key])) descend(child);
    ancestors.pop();
  };
  descend(root);
}

export function listNodes(value: unknown): AstNode[] {
  if (Array.isArray(value)) return value.filter(isNode);
  return isNode(value) ? [value] : [];
}

export function isNode(value: unknown): value is AstNode {
  return typeof value === "object" && value !== null && "type" in value && typeof value.type === "string";
}

/** The name of an identifier or the value of a string literal; empty for anything else. */
export function nameOf(value: unknown): string {
  if (!isNode(value)) return "";
  if (value.type === "Identifier" || value.type === "PrivateIdentifier") return String(value["name"]);
  return value.type === "Literal" && typeof value["value"] === "string" ? value["value"] : "";
}

/** `a.b.c` of a chain of plain member accesses; empty when it is not one. */
export function dottedName(value: unknown): string {
  if (!isNode(value)) return "";
  if (value.type !== "MemberExpression") return nameOf(value);
  const object = dottedName(value["object"]);
  const property = nameOf(value["property"]);
  return object === "" || property === "" ? "" : `${object}.${property}`;
}

function listImports(source: Source): Import[] {
  const imports: Import[] = [];
  walk(source.program, (node) => {
    const specifier = nameOf(node["source"]);
    const add = (isType: boolean): void => void imports.push({ specifier, line: source.lineOf(node.start), isType });
    switch (node.type) {
      case "ImportDeclaration":
        add(isTypeOnly(node, node["importKind"]));
        break;
      case "ExportNamedDeclaration":
      case "ExportAllDeclaration":
        if (specifier !== "") add(isTypeOnly(node, node["exportKind"]));
        break;
      case "ImportExpression":
        if (specifier !== "") add(false);
        break;
      case "TSImportType":
        if (specifier !== "") add(true);
        break;
    }
  });
  return imports;
}

function isTypeOnly(node: AstNode, kind: unknown): boolean {
  if (kind === "type") return true;
  const specifiers = listNodes(node["specifiers"]);
  return specifiers.length > 0 && specifiers.every((s) => s["importKind"] === "type" || s["exportKind"] === "type");
}

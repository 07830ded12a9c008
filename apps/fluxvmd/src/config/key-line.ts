/**
 * The line of a TOML file that sets a key, for messages. A reading of table headers and `key =` lines, not a parser:
 * where it cannot tell (inline tables, dotted keys with quotes) it names the nearest enclosing line or none.
 */
export function findKeyLine(text: string, path: readonly string[]): number | undefined {
  let table: readonly string[] = [];
  let best: { readonly line: number; readonly depth: number } | undefined;
  for (const [index, raw] of text.split("\n").entries()) {
    const line = raw.trim();
    const header = /^\[\[?\s*([^\]]+?)\s*\]\]?/.exec(line);
    const assigned = header === null ? /^([A-Za-z0-9_."'\- ]+?)\s*=/.exec(line) : null;
    if (header !== null) table = splitKey(header[1] ?? "");
    const key = header !== null ? table : assigned === null ? undefined : [...table, ...splitKey(assigned[1] ?? "")];
    if (key === undefined || key.length > path.length || key.some((part, i) => part !== path[i])) continue;
    if (best === undefined || key.length > best.depth) best = { line: index + 1, depth: key.length };
  }
  return best?.line;
}

function splitKey(text: string): readonly string[] {
  return text.split(".").map((part) => part.trim().replace(/^(["'])(.*)\1$/, "$2"));
}

/**
 * Query strings, strictly: every value is text until its schema asks for a number or a boolean, and only text that is
 * exactly one is taken. A parameter given twice, or bad percent-encoding, is an error of the request.
 */
import { PlatformError } from "@fluxvm/core";

/** Put in place of a query that cannot be read: the parser runs where nothing may be thrown. */
const MALFORMED = Symbol("malformed query");

type ParsedQuery = Record<string, unknown> & { [MALFORMED]?: string };

export function parseQuery(text: string): Record<string, unknown> {
  const query: ParsedQuery = {};
  for (const pair of text.split("&")) {
    if (pair === "") continue;
    const equals = pair.indexOf("=");
    const name = decode(equals === -1 ? pair : pair.slice(0, equals));
    const value = decode(equals === -1 ? "" : pair.slice(equals + 1));
    if (name === undefined || value === undefined || name === "__proto__") {
      query[MALFORMED] = "its percent-encoding is wrong";
    } else if (Object.hasOwn(query, name)) {
      query[MALFORMED] = `${JSON.stringify(name.slice(0, 80))} is given twice`;
    } else {
      query[name] = value;
    }
  }
  return query;
}

/** @throws PlatformError `REQUEST_INVALID` when the query could not be read. */
export function requireReadableQuery(query: unknown): void {
  const reason = (query as ParsedQuery | undefined)?.[MALFORMED]; // made by parseQuery, or absent
  if (reason !== undefined) throw new PlatformError("REQUEST_INVALID", `Malformed query: ${reason}`);
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return undefined;
  }
}

interface ParameterSchema {
  readonly type?: string;
}

/** Texts as the numbers and booleans the schema asks for; what is not exactly one stays text and fails the check. */
export function convertParameters(
  properties: Readonly<Record<string, ParameterSchema>>,
  values: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const converted: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(values)) {
    const type = Object.hasOwn(properties, name) ? properties[name]?.type : undefined;
    converted[name] = typeof value === "string" ? convert(type, value) : value;
  }
  return converted;
}

function convert(type: string | undefined, text: string): unknown {
  switch (type) {
    case "integer":
      return /^-?\d{1,16}$/.test(text) ? Number(text) : text;
    case "number":
      return /^-?\d{1,16}(\.\d{1,16})?$/.test(text) ? Number(text) : text;
    case "boolean":
      return text === "true" ? true : text === "false" ? false : text;
    default:
      return text;
  }
}

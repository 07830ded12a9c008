/**
 * Checks untrusted data against a schema and says, in words for people, what is wrong with each field.
 *
 * Nothing is coerced. The walk follows the JSON Schema keywords our schemas use; a union of objects is told apart by
 * its constant member (`mode`), so that a typo inside one variant is reported there and not as "no variant matches".
 * Called by the API for bodies and queries, and by the daemon for its TOML file.
 */
import { findNearest, type FieldProblem } from "@fluxvm/core";

/** The keywords in use. Every TypeBox schema is one. */
interface JsonSchema {
  readonly type?: string;
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly JsonSchema[];
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly patternProperties?: Readonly<Record<string, JsonSchema>>;
  readonly additionalProperties?: boolean | JsonSchema;
  readonly required?: readonly string[];
  readonly minProperties?: number;
  readonly maxProperties?: number;
  readonly items?: JsonSchema;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly exclusiveMaximum?: number;
  readonly default?: unknown;
  readonly description?: string;
}

export interface SchemaProblem extends FieldProblem {
  /** `unknown`: the schema has no such field. `missing`: a required one is absent. `wrong`: its value is refused. */
  readonly kind: "unknown" | "missing" | "wrong";
  /** For `unknown`: the dotted path that was likely meant. */
  readonly suggestion?: string | undefined;
}

const MAX_PROBLEMS = 20;

/** What is wrong with `value`, at most 20 problems; empty when it satisfies `schema`. */
export function findSchemaProblems(schema: object, value: unknown): readonly SchemaProblem[] {
  const problems: SchemaProblem[] = [];
  walk(schema, value, "", problems);
  return problems.slice(0, MAX_PROBLEMS);
}

/**
 * A copy of `value` with the schema's defaults filled in. With `deep`, absent objects are made when they have no
 * default of their own, so that a configuration comes out complete.
 */
export function fillSchemaDefaults(schema: object, value: unknown, options: { readonly deep: boolean } = { deep: false }): unknown {
  return fill(schema, value, options.deep);
}

function walk(schema: JsonSchema, value: unknown, path: string, problems: SchemaProblem[]): void {
  if (problems.length >= MAX_PROBLEMS) return;
  if (schema.anyOf !== undefined) return walkUnion(schema, schema.anyOf, value, path, problems);
  if (schema.const !== undefined && schema.const !== value) return wrong(problems, path, `must be ${JSON.stringify(schema.const)}`);
  if (schema.enum !== undefined && !schema.enum.includes(value)) {
    return wrong(problems, path, `must be one of ${schema.enum.map((v) => JSON.stringify(v)).join(", ")}`);
  }
  if (schema.type !== undefined && !hasType(schema.type, value)) {
    return wrong(problems, path, `must be ${nameType(schema.type)}, not ${nameValue(value)}`);
  }
  if (typeof value === "string") checkString(schema, value, path, problems);
  else if (typeof value === "number") checkNumber(schema, value, path, problems);
  else if (Array.isArray(value)) checkArray(schema, value, path, problems);
  else if (isRecord(value)) checkObject(schema, value, path, problems);
}

function walkUnion(schema: JsonSchema, variants: readonly JsonSchema[], value: unknown, path: string, problems: SchemaProblem[]): void {
  if (variants.every((v) => v.const !== undefined)) {
    if (variants.some((v) => v.const === value)) return;
    return wrong(problems, path, `must be one of ${variants.map((v) => JSON.stringify(v.const)).join(", ")}`);
  }
  if (variants.some((v) => matches(v, value))) return;
  const sameType = variants.filter((v) => v.type === undefined || hasType(v.type, value));
  const chosen = sameType.length === 1 ? sameType[0] : findTagged(sameType, value);
  if (chosen !== undefined) return walk(chosen, value, path, problems);
  const tag = findTag(sameType);
  if (tag !== undefined && sameType.length > 0) {
    const allowed = sameType.map((v) => JSON.stringify(v.properties?.[tag]?.const)).join(", ");
    const kind = isRecord(value) && Object.hasOwn(value, tag) ? "wrong" : "missing";
    problems.push({ kind, path: join(path, tag), message: `must be one of ${allowed}` });
    return;
  }
  const names = [...new Set(variants.map((v) => (v.const === undefined ? nameType(v.type ?? "value") : JSON.stringify(v.const))))];
  wrong(problems, path, `must be ${names.join(" or ")}${schema.description === undefined ? "" : ` (${schema.description})`}`);
}

function matches(schema: JsonSchema, value: unknown): boolean {
  const problems: SchemaProblem[] = [];
  walk(schema, value, "", problems);
  return problems.length === 0;
}

/** The member that is a constant in every variant. */
function findTag(variants: readonly JsonSchema[]): string | undefined {
  const first = Object.keys(variants[0]?.properties ?? {});
  return first.find((key) => variants.every((v) => v.properties?.[key]?.const !== undefined));
}

function findTagged(variants: readonly JsonSchema[], value: unknown): JsonSchema | undefined {
  const tag = findTag(variants);
  if (tag === undefined || !isRecord(value)) return undefined;
  return variants.find((v) => v.properties?.[tag]?.const === value[tag]);
}

function checkString(schema: JsonSchema, value: string, path: string, problems: SchemaProblem[]): void {
  if (schema.minLength !== undefined && value.length < schema.minLength) {
    wrong(problems, path, schema.minLength === 1 ? "must not be empty" : `must have at least ${schema.minLength} characters`);
  } else if (schema.maxLength !== undefined && value.length > schema.maxLength) {
    wrong(problems, path, `must have at most ${schema.maxLength} characters`);
  } else if (schema.pattern !== undefined && !compile(schema.pattern).test(value)) {
    wrong(problems, path, `must match ${schema.pattern}${schema.description === undefined ? "" : ` (${schema.description})`}`);
  }
}

function checkNumber(schema: JsonSchema, value: number, path: string, problems: SchemaProblem[]): void {
  if (schema.minimum !== undefined && value < schema.minimum) wrong(problems, path, `must be at least ${schema.minimum}`);
  else if (schema.exclusiveMinimum !== undefined && value <= schema.exclusiveMinimum)
    wrong(problems, path, `must be greater than ${schema.exclusiveMinimum}`);
  else if (schema.maximum !== undefined && value > schema.maximum) wrong(problems, path, `must be at most ${schema.maximum}`);
  else if (schema.exclusiveMaximum !== undefined && value >= schema.exclusiveMaximum)
    wrong(problems, path, `must be less than ${schema.exclusiveMaximum}`);
}

function checkArray(schema: JsonSchema, value: readonly unknown[], path: string, problems: SchemaProblem[]): void {
  if (schema.minItems !== undefined && value.length < schema.minItems) wrong(problems, path, `must have at least ${schema.minItems} items`);
  if (schema.maxItems !== undefined && value.length > schema.maxItems)
    return wrong(problems, path, `must have at most ${schema.maxItems} items`);
  const { items } = schema;
  if (items !== undefined) value.forEach((item, i) => walk(items, item, join(path, String(i)), problems));
}

function checkObject(schema: JsonSchema, value: Readonly<Record<string, unknown>>, path: string, problems: SchemaProblem[]): void {
  const keys = Object.keys(value);
  if (schema.maxProperties !== undefined && keys.length > schema.maxProperties) {
    return wrong(problems, path, `must have at most ${schema.maxProperties} entries`);
  }
  if (schema.minProperties !== undefined && keys.length < schema.minProperties) {
    wrong(problems, path, `must have at least ${schema.minProperties} entries`);
  }
  for (const key of schema.required ?? []) {
    if (!Object.hasOwn(value, key)) problems.push({ kind: "missing", path: join(path, key), message: "is required" });
  }
  for (const key of keys) {
    const member = findMember(schema, key);
    if (member === "unknown") pushUnknown(schema, key, path, problems);
    else if (member !== undefined) walk(member, value[key], join(path, key), problems);
  }
}

/** The schema of `key`; `undefined` when anything goes. */
function findMember(schema: JsonSchema, key: string): JsonSchema | "unknown" | undefined {
  if (schema.properties !== undefined && Object.hasOwn(schema.properties, key)) return schema.properties[key];
  for (const [pattern, member] of Object.entries(schema.patternProperties ?? {})) {
    if (compile(pattern).test(key)) return member;
  }
  // A map refuses keys outside its pattern even where its schema does not say so: nothing else could name them.
  if (schema.additionalProperties === false || schema.patternProperties !== undefined) return "unknown";
  return typeof schema.additionalProperties === "object" ? schema.additionalProperties : undefined;
}

function pushUnknown(schema: JsonSchema, key: string, path: string, problems: SchemaProblem[]): void {
  const patterns = Object.keys(schema.patternProperties ?? {});
  if (patterns.length > 0) {
    return wrong(problems, path, `has a key that must match ${patterns.join(" or ")}: ${JSON.stringify(key.slice(0, 80))}`);
  }
  const nearest = findNearest(key, Object.keys(schema.properties ?? {}));
  const suggestion = nearest === undefined ? undefined : join(path, nearest);
  const hint = suggestion === undefined ? "" : `, did you mean ${JSON.stringify(suggestion)}`;
  problems.push({ kind: "unknown", path: join(path, key.slice(0, 80)), message: `is unknown${hint}`, suggestion });
}

function wrong(problems: SchemaProblem[], path: string, message: string): void {
  problems.push({ kind: "wrong", path, message });
}

function fill(schema: JsonSchema, value: unknown, deep: boolean): unknown {
  if (value === undefined) {
    if (schema.default !== undefined) return structuredClone(schema.default);
    if (!deep || schema.type !== "object" || schema.properties === undefined) return undefined;
    return fill(schema, {}, deep);
  }
  if (schema.anyOf !== undefined) {
    const variant = schema.anyOf.find((v) => matches(v, value));
    return variant === undefined ? value : fill(variant, value, deep);
  }
  if (Array.isArray(value)) {
    const { items } = schema;
    return items === undefined ? [...(value as unknown[])] : value.map((item) => fill(items, item, deep)); // elements stay unknown
  }
  if (!isRecord(value)) return value;
  const filled: Record<string, unknown> = {};
  for (const [key, member] of Object.entries(value)) {
    const memberSchema = findMember(schema, key);
    filled[key] = typeof memberSchema === "object" ? fill(memberSchema, member, deep) : member;
  }
  for (const [key, member] of Object.entries(schema.properties ?? {})) {
    if (Object.hasOwn(filled, key)) continue;
    const made = fill(member, undefined, deep);
    if (made !== undefined) filled[key] = made;
  }
  return filled;
}

function hasType(type: string, value: unknown): boolean {
  switch (type) {
    case "integer":
      return Number.isSafeInteger(value);
    case "number":
      return Number.isFinite(value);
    case "array":
      return Array.isArray(value);
    case "null":
      return value === null;
    case "object":
      return isRecord(value);
    default:
      return typeof value === type;
  }
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Date);
}

function nameType(type: string): string {
  switch (type) {
    case "integer":
      return "a whole number";
    case "array":
      return "a list";
    case "object":
      return "an object";
    case "null":
      return "null";
    case "boolean":
      return "true or false";
    default:
      return `a ${type}`;
  }
}

function nameValue(value: unknown): string {
  if (value === null) return "null";
  if (value === undefined) return "nothing";
  if (Array.isArray(value)) return "a list";
  if (value instanceof Date) return "a date";
  if (typeof value === "number") return String(value);
  if (typeof value === "object") return "an object";
  return `a ${typeof value}`;
}

function join(path: string, key: string): string {
  return path === "" ? key : `${path}.${key}`;
}

const compiled = new Map<string, RegExp>();

/** Patterns come from our schemas alone, so the cache is bounded by them. */
function compile(pattern: string): RegExp {
  let expression = compiled.get(pattern);
  if (expression === undefined) {
    expression = new RegExp(pattern, "u");
    compiled.set(pattern, expression);
  }
  return expression;
}

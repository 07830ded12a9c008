/**
 * The schema compiler behind every route: the walk that finds words for what is wrong, backed by TypeBox's own check for
 * keywords the walk does not know. Bodies are never coerced; defaults are filled in from the schema.
 */
import { fillSchemaDefaults, findSchemaProblems, UNSERVED_VM_FIELDS } from "@fluxvm/contracts";
import { PlatformError } from "@fluxvm/core";
import type { FastifySchemaCompiler } from "fastify";
import type { TSchema } from "typebox";
import { Compile } from "typebox/compile";
import { problemsToError } from "./errors.ts";
import { convertParameters } from "./query.ts";

interface ObjectSchema {
  readonly $id?: string;
  readonly properties?: Readonly<Record<string, { readonly type?: string }>>;
  readonly required?: readonly string[];
}

export const compileSchema: FastifySchemaCompiler<TSchema> = ({ schema, httpPart }) => {
  const check = Compile(schema);
  const shape = schema as ObjectSchema; // every part of ours is described by an object schema
  const part = httpPart === "querystring" ? "query" : httpPart === "params" ? "path" : "body";
  const unserved = shape.$id === "CreateVmRequest" ? UNSERVED_VM_FIELDS : [];
  return (received: unknown) => {
    const value =
      part === "body" ? orEmpty(received, shape) : convertParameters(shape.properties ?? {}, received as Record<string, unknown>); // parsed by us
    if (value === undefined || value === null) return { error: new PlatformError("REQUEST_INVALID", "The request needs a JSON body") };
    const problems = findSchemaProblems(schema, value);
    if (problems.length > 0) return { error: problemsToError(part, problems, unserved) };
    if (!check.Check(value)) return { error: problemsToError(part, [{ kind: "wrong", path: "", message: "does not fit its schema" }]) };
    return { value: fillSchemaDefaults(schema, value) };
  };
};

/** A body all of whose fields may be left out may be left out as a whole. */
function orEmpty(received: unknown, shape: ObjectSchema): unknown {
  if (received !== undefined && received !== null) return received;
  return (shape.required ?? []).length === 0 ? {} : undefined;
}

/**
 * The schema compiler behind every route: the walk that finds words for what is wrong, backed by TypeBox's own check for
 * keywords the walk does not know. Bodies are never coerced; defaults are filled in from the schema.
 */
import { fillSchemaDefaults, findSchemaProblems, UNSERVED_NETWORK_MODES, UNSERVED_VM_FIELDS } from "@fluxvm/contracts";
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
  const isCreateVm = shape.$id === "CreateVmRequest";
  const unserved = isCreateVm ? UNSERVED_VM_FIELDS : [];
  return (received: unknown) => {
    const value =
      part === "body" ? orEmpty(received, shape) : convertParameters(shape.properties ?? {}, received as Record<string, unknown>); // parsed by us
    if (value === undefined || value === null) return { error: new PlatformError("REQUEST_INVALID", "The request needs a JSON body") };
    const mode = isCreateVm ? findUnservedMode(value) : undefined;
    if (mode !== undefined) return { error: unservedMode(mode) };
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

/** A network mode that is right but not served yet is told apart from one that is wrong. */
function findUnservedMode(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null || !("network" in value)) return undefined;
  const { network } = value;
  if (typeof network !== "object" || network === null || !("mode" in network) || typeof network.mode !== "string") return undefined;
  return UNSERVED_NETWORK_MODES.includes(network.mode) ? network.mode : undefined;
}

function unservedMode(mode: string): PlatformError {
  const message = `Unsupported network mode ${JSON.stringify(mode)}: this version serves "user" and "none"`;
  return new PlatformError("FIELD_UNSUPPORTED", message, { fields: [{ path: "network.mode", message: "is not served yet" }] });
}

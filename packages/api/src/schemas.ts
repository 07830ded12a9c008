/** Pieces that route schemas share: path parameters, lists, and the replies of each error class. */
import { ErrorBodySchema } from "@fluxvm/contracts";
import { ERROR_CLASSES, type ErrorClass } from "@fluxvm/core";
import { Type, type TObject, type TSchema } from "typebox";

const REFERENCE_LENGTH = { minLength: 1, maxLength: 512 } as const;

export const VmParams = Type.Object({ vm: Type.String({ ...REFERENCE_LENGTH, description: "Id or name of a VM" }) });
export const ExecParams = Type.Object({
  vm: Type.String({ ...REFERENCE_LENGTH, description: "Id or name of a VM" }),
  exec: Type.String({ ...REFERENCE_LENGTH, description: "Id of an exec, or `workload`" }),
});
export const ImageParams = Type.Object({
  image: Type.String({ ...REFERENCE_LENGTH, description: "Id, name or digest of an image; `/` and `:` percent-encoded" }),
});
export const KernelParams = Type.Object({
  kernel: Type.String({ ...REFERENCE_LENGTH, description: "Id or name of a kernel, percent-encoded" }),
});

export const ReadyQuery = {
  ready: Type.Optional(
    Type.Literal("exec", { description: "Answer only when a first command has run in the guest, with the time each phase took" }),
  ),
  wait_first_command: Type.Optional(Type.Boolean({ description: "The same as `ready=exec`" })),
};

export const TimeoutSeconds = Type.Optional(
  Type.Number({ minimum: 0, maximum: 86_400, default: 60, description: "How long to wait before answering `WAIT_TIMEOUT`" }),
);

export const GuestPath = Type.String({ pattern: "^/", maxLength: 4096, description: "Absolute path in the guest" });

export function listOf<T extends TSchema>(items: T): TObject<{ items: ReturnType<typeof Type.Array<T>> }> {
  return Type.Object({ items: Type.Array(items) });
}

/** A reply without a body. */
export const NoContent = Type.Null({ description: "Done" });

/** Errors any route may answer with. */
const ALWAYS: readonly ErrorClass[] = [
  "invalid_argument",
  "unauthenticated",
  "permission_denied",
  "throttled",
  "internal",
  "unavailable",
  "deadline_exceeded",
];

const CLASS_WORDS: Readonly<Record<number, string>> = {
  400: "The request is malformed; `fields` says where",
  401: "No token, or one the daemon does not know",
  403: "Not allowed",
  404: "There is no such thing",
  405: "The route does not know this method",
  408: "The request did not arrive in time",
  409: "It exists already, or its state does not allow this",
  413: "The body is too large",
  415: "The body's content type is not understood",
  429: "Too much at a time; `Retry-After` says when to come back",
  499: "The caller went away",
  500: "A fault of ours; the log holds the request id",
  501: "Not served by this version or backend",
  503: "Not available now; try again",
  504: "Not done in the time given",
  507: "Out of disk, memory or another bounded thing",
};

/**
 * The `response` of a route: its successes and, for the documentation, every error status it may answer with. The type
 * tells of the successes alone, because handlers throw their errors.
 */
export function replies<T extends Record<number, unknown>>(
  successes: T,
  classes: readonly ErrorClass[] = [],
  extra: readonly number[] = [],
): T {
  const statuses = new Set([...[...ALWAYS, ...classes].map((c) => ERROR_CLASSES[c].http), ...extra]);
  const errors = [...statuses].toSorted((a, b) => a - b).map((status) => [status, describeError(status)]);
  return { ...successes, ...(Object.fromEntries(errors) as object) }; // numeric keys, hidden from the type on purpose
}

/** Statuses of a route that reads a JSON body. */
export const BODY_ERRORS = [408, 413, 415] as const;

/** What a status means, in words. */
export function describeStatus(status: number): string {
  if (status >= 400) return CLASS_WORDS[status] ?? "Error";
  return status === 201 ? "Made" : status === 202 ? "Accepted; it goes on in the background" : "Done";
}

function describeError(status: number): unknown {
  return { description: describeStatus(status), content: { "application/json": { schema: ErrorBodySchema } } };
}

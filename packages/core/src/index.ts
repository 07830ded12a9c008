export { assert, assertNever, AssertionError } from "./assert.ts";
export type { CallOptions } from "./call-options.ts";
export type { Clock } from "./clock.ts";
export { abortable, withDeadline, type DeadlineOptions } from "./deadline.ts";
export { findNearest } from "./did-you-mean.ts";
export { ERROR_CATALOGUE, ERROR_CLASSES, isErrorCode, type ErrorClass, type ErrorCode } from "./errors/catalogue.ts";
export {
  fromErrorBody,
  invalidField,
  isPlatformError,
  PlatformError,
  toErrorBody,
  toPlatformError,
  type ErrorBody,
  type FieldProblem,
  type PlatformErrorOptions,
} from "./errors/platform-error.ts";
export { isId, newId, parseId, type ExecId, type ImageId, type InstanceId, type KernelId, type RequestId, type VmId } from "./ids.ts";
export { KeyedQueue } from "./keyed-queue.ts";
export { Mailbox } from "./mailbox.ts";
export { createSeededRandom, randomHex, systemRandom, type Random } from "./random.ts";
export { computeBackoffMs, retry, type RetryOptions } from "./retry.ts";
export { Scope } from "./scope.ts";
export { formatBytes, formatDuration, GIB, KIB, MIB, parseDurationMs, parseSizeBytes } from "./units.ts";

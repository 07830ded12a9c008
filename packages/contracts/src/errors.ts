/** Errors as they cross a process: the class a client catches and how it is rebuilt from the body on the wire. */
export {
  fromErrorBody,
  isPlatformError,
  PlatformError,
  toPlatformError,
  type ErrorBody,
  type ErrorClass,
  type ErrorCode,
  type FieldProblem,
} from "@fluxvm/core";

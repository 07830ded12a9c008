/**
 * The one table of operating errors: a permanent code, its class and what the reader can do about it.
 * A class decides the HTTP status, the CLI exit code and how a reconciler reacts; see `ERROR_CLASSES`.
 * `docs/manual/errors.md` lists the same rows; a test fails until both agree.
 */

/** How each error class shows on every outside surface. */
export const ERROR_CLASSES = {
  invalid_argument: { http: 400, grpc: 3, exit: 2 },
  unauthenticated: { http: 401, grpc: 16, exit: 5 },
  permission_denied: { http: 403, grpc: 7, exit: 5 },
  not_found: { http: 404, grpc: 5, exit: 3 },
  already_exists: { http: 409, grpc: 6, exit: 4 },
  failed_precondition: { http: 409, grpc: 9, exit: 4 },
  conflict: { http: 409, grpc: 10, exit: 4 },
  throttled: { http: 429, grpc: 8, exit: 6 },
  capacity_exhausted: { http: 507, grpc: 8, exit: 7 },
  unavailable: { http: 503, grpc: 14, exit: 6 },
  deadline_exceeded: { http: 504, grpc: 4, exit: 6 },
  cancelled: { http: 499, grpc: 1, exit: 130 },
  unsupported: { http: 501, grpc: 12, exit: 2 },
  data_loss: { http: 500, grpc: 15, exit: 1 },
  internal: { http: 500, grpc: 13, exit: 1 },
} as const;

export type ErrorClass = keyof typeof ERROR_CLASSES;

interface CatalogueRow {
  readonly class: ErrorClass;
  /** One sentence for the manual: when it happens and what to do. */
  readonly help: string;
}

/** Every operating error there is. Codes are permanent: rows are added, never renamed. */
export const ERROR_CATALOGUE = {
  // requests
  REQUEST_INVALID: { class: "invalid_argument", help: "The request is malformed. `fields` names what to correct." },
  FIELD_UNKNOWN: {
    class: "invalid_argument",
    help: "The request has a field this version does not know. Remove it or correct its spelling.",
  },
  FIELD_UNSUPPORTED: { class: "unsupported", help: "The field exists in the specification but is not served yet. Remove it." },
  PAYLOAD_TOO_LARGE: { class: "invalid_argument", help: "The request body is larger than the limit. Send less." },
  REQUEST_TIMEOUT: { class: "deadline_exceeded", help: "The request did not arrive whole in time. Send it faster or in smaller pieces." },
  MEDIA_TYPE_UNSUPPORTED: { class: "invalid_argument", help: "The body's content type is not understood. Send `application/json`." },
  METHOD_NOT_ALLOWED: { class: "invalid_argument", help: "The route does not know this method. The `Allow` header lists those it knows." },
  ORIGIN_DENIED: {
    class: "permission_denied",
    help: "The `Host` or `Origin` header names a site that may not use the TCP listener. Add the name to `[api] allowed_hosts`.",
  },
  SHUTTING_DOWN: { class: "unavailable", help: "The daemon is stopping. Try again when it is back; VMs run on." },
  ROUTE_UNKNOWN: { class: "not_found", help: "There is no such route. See `/v1/openapi.json`." },
  TOKEN_MISSING: { class: "unauthenticated", help: "The TCP listener demands a bearer token. Pass the one in the daemon's token file." },
  TOKEN_INVALID: { class: "unauthenticated", help: "The bearer token is not known to the daemon." },
  REQUEST_CANCELLED: { class: "cancelled", help: "The caller went away or cancelled before the work was done." },
  DEADLINE_EXCEEDED: { class: "deadline_exceeded", help: "The work did not end in the time given. Try again or allow more time." },
  QUEUE_FULL: { class: "throttled", help: "Too many requests wait for the same thing. Try again later." },
  INTERNAL: { class: "internal", help: "A fault of ours. The log holds the request id and the cause." },
  DAEMON_UNREACHABLE: {
    class: "unavailable",
    help: "The daemon does not answer. Start it with `fluxctl serve`, or name its address with `--server`.",
  },
  DAEMON_PROTOCOL: {
    class: "internal",
    help: "The daemon answered something unexpected. Check that the address is a FluxVM daemon of this version.",
  },
  LOCAL_FILE_NOT_FOUND: { class: "not_found", help: "There is no such file on this side. Check the path." },
  LOCAL_FILE_FAILED: {
    class: "failed_precondition",
    help: "A file on this side cannot be read or written. Check its mode and the free space.",
  },
  NOT_A_TERMINAL: { class: "invalid_argument", help: "A terminal was asked for where there is none. Leave out `--tty`." },
  // configuration and host
  CONFIG_INVALID: { class: "invalid_argument", help: "The configuration file is wrong. The message names the key." },
  CONFIG_UNREADABLE: { class: "not_found", help: "The configuration file cannot be read. Check its path and mode." },
  STATE_DIR_LOCKED: {
    class: "failed_precondition",
    help: "Another daemon uses this state directory. Stop it or choose another directory.",
  },
  STATE_DIR_UNUSABLE: {
    class: "failed_precondition",
    help: "The state directory cannot be made or written. Check owner, mode and free space.",
  },
  STORE_CORRUPT: {
    class: "data_loss",
    help: "The state database cannot be read. Restore it from a backup; nothing is deleted automatically.",
  },
  STORE_TOO_NEW: { class: "failed_precondition", help: "A newer version wrote the state database. Run that version." },
  STORE_CONFLICT: { class: "conflict", help: "The record changed in between. Read it again and retry." },
  STORE_UNAVAILABLE: { class: "unavailable", help: "The state database does not answer. See the daemon's log." },
  HOST_TOOL_MISSING: {
    class: "failed_precondition",
    help: "A program the work needs is not installed. The message names it; `fluxctl doctor` says how to get it.",
  },
  HOST_TOOL_FAILED: { class: "internal", help: "A program the work needs failed. The message holds its last lines." },
  HOST_CAPABILITY_MISSING: { class: "failed_precondition", help: "This host cannot do what was asked. `fluxctl doctor` says why." },
  HOST_HELPER_UNAVAILABLE: {
    class: "unavailable",
    help: "The host helper process does not answer. It is started again by itself; try again.",
  },
  HOST_OUT_OF_SPACE: { class: "capacity_exhausted", help: "The disk is full. Free space and try again; nothing half-made is kept." },
  PORT_IN_USE: { class: "failed_precondition", help: "Another process listens on the address. Choose another or stop it." },
  // VMs
  VM_NOT_FOUND: { class: "not_found", help: "There is no VM of that id or name." },
  VM_NAME_TAKEN: { class: "already_exists", help: "A VM of that name exists. Choose another name or delete it." },
  VM_NOT_RUNNING: { class: "failed_precondition", help: "The VM must be running. Start or resume it." },
  VM_NOT_PAUSED: { class: "failed_precondition", help: "The VM must be paused." },
  VM_STATE_DENIED: { class: "failed_precondition", help: "The VM's state does not allow this. The message names the state." },
  VM_STOP_PENDING: { class: "failed_precondition", help: "The VM is being stopped. Wait until it is stopped." },
  VM_DELETE_PENDING: { class: "failed_precondition", help: "The VM is being deleted." },
  VM_LAUNCH_FAILED: { class: "internal", help: "The VMM did not start. The message holds its last lines." },
  VM_EXITED: { class: "failed_precondition", help: "The VM ended while the request was under way. Its `reason` says why." },
  VM_FAILED: { class: "failed_precondition", help: "The VM has failed. Its `reason` and log say why; start or delete it." },
  BACKEND_UNKNOWN: { class: "invalid_argument", help: "There is no such backend." },
  BACKEND_UNAVAILABLE: { class: "failed_precondition", help: "The backend cannot run on this host. The message says why." },
  BACKEND_UNSUPPORTED: { class: "unsupported", help: "The backend has no such ability. Choose another backend." },
  BACKEND_PROTOCOL: { class: "internal", help: "The VMM answered something unexpected." },
  UID_RANGE_EXHAUSTED: {
    class: "capacity_exhausted",
    help: "Every user id of the configured range is in use by a VM. Widen the range or delete VMs.",
  },
  WAIT_TIMEOUT: { class: "deadline_exceeded", help: "The state was not reached in time. The VM goes on; look at its log." },
  // guest
  AGENT_DISABLED: { class: "failed_precondition", help: "The VM was created without the guest agent." },
  AGENT_UNREACHABLE: { class: "unavailable", help: "The guest agent does not answer. Wait until the VM is ready or read its log." },
  AGENT_AUTH_FAILED: { class: "permission_denied", help: "The guest agent refused the VM's token." },
  AGENT_PROTOCOL: { class: "internal", help: "The guest agent sent something that is not in the protocol." },
  EXEC_NOT_FOUND: { class: "not_found", help: "There is no such exec in the VM, or it was already collected." },
  EXEC_START_FAILED: { class: "failed_precondition", help: "The command could not be started in the guest. The message says why." },
  EXEC_OUTPUT_LOST: { class: "data_loss", help: "Output before the offset asked for was already acknowledged and dropped." },
  EXEC_STREAM_GAP: {
    class: "data_loss",
    help: "The exec's connection skipped output. The client attaches again by itself; report it if it stays.",
  },
  EXEC_STDIN_ENDED: { class: "failed_precondition", help: "The command's standard input was ended already. Write before ending it." },
  EXEC_TAKEN_OVER: { class: "conflict", help: "Another consumer attached to the exec. Attach again to take it back." },
  EXEC_LIMIT: { class: "throttled", help: "Too many execs in this VM. Wait for some to end." },
  GUEST_FILE_NOT_FOUND: { class: "not_found", help: "There is no such file in the guest." },
  GUEST_FILE_EXISTS: { class: "already_exists", help: "The path exists in the guest." },
  GUEST_FILE_DENIED: { class: "permission_denied", help: "The guest refused access to the path." },
  GUEST_FILE_INVALID: {
    class: "failed_precondition",
    help: "The path is of the wrong kind, for example a directory where a file is needed.",
  },
  GUEST_FILE_IO: { class: "internal", help: "The guest could not read or write the file. The message holds its error." },
  GUEST_OUT_OF_SPACE: { class: "capacity_exhausted", help: "The guest's file system is full." },
  // images and kernels
  IMAGE_NOT_FOUND: { class: "not_found", help: "There is no image of that id, name or digest." },
  IMAGE_NOT_READY: {
    class: "failed_precondition",
    help: "The image is still being imported or its import failed. Wait for it, or see its `error`.",
  },
  IMAGE_NAME_TAKEN: { class: "already_exists", help: "An image of that name exists. Choose another name or delete it." },
  IMAGE_IN_USE: { class: "failed_precondition", help: "A VM or a build uses the image. The message names it." },
  IMAGE_SOURCE_INVALID: { class: "invalid_argument", help: "The image source cannot be understood. The message says which part." },
  IMAGE_SOURCE_UNREACHABLE: { class: "unavailable", help: "The image source cannot be read now. Check the path or the network." },
  IMAGE_DIGEST_MISMATCH: {
    class: "failed_precondition",
    help: "The bytes do not have the digest asked for. The source changed or is corrupt; nothing was kept.",
  },
  IMAGE_TRUNCATED: { class: "failed_precondition", help: "The image ends too early. Fetch it again." },
  IMAGE_MALFORMED: { class: "invalid_argument", help: "The image's format is wrong. The message names the file." },
  IMAGE_LAYER_UNSAFE: {
    class: "permission_denied",
    help: "A layer tries to write outside the image's root or make a device. The message names the entry.",
  },
  IMAGE_TOO_LARGE: { class: "capacity_exhausted", help: "The image unpacks to more than the configured limit." },
  IMAGE_BUILD_FAILED: { class: "failed_precondition", help: "The build failed. The message holds its last lines." },
  DISK_SHRINK_REFUSED: { class: "invalid_argument", help: "A disk can only grow. Ask for at least the image's size." },
  KERNEL_NOT_FOUND: { class: "not_found", help: "There is no kernel of that id or name. `fluxctl kernel import` adds one." },
  KERNEL_NOT_READY: {
    class: "failed_precondition",
    help: "The kernel is still being imported or its import failed. Wait for it, or see its `error`.",
  },
  KERNEL_NAME_TAKEN: { class: "already_exists", help: "A kernel of that name exists. Choose another name or delete it." },
  KERNEL_IN_USE: { class: "failed_precondition", help: "A VM uses the kernel. The message names it." },
  KERNEL_INVALID: { class: "invalid_argument", help: "The file is no kernel we can boot. The message says what is missing." },
} as const satisfies Record<string, CatalogueRow>;

export type ErrorCode = keyof typeof ERROR_CATALOGUE;

export function isErrorCode(value: string): value is ErrorCode {
  return Object.hasOwn(ERROR_CATALOGUE, value);
}

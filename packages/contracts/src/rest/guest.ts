/**
 * What happens inside a guest: execs and files.
 *
 * An exec's output is numbered by byte. A client attaches with `?stdout_offset=N&stderr_offset=M` (default 0) over a
 * WebSocket and acknowledges what it has safely got; the guest keeps unacknowledged output (bounded) across every
 * disconnect and daemon restart. Binary frames: `u8 channel (0 stdin, 1 stdout, 2 stderr) | u64 big-endian offset | bytes`.
 * Text frames are `ExecClientMessage` one way and `ExecServerMessage` the other.
 *
 * The first server frame is `attached`, or `error` followed by a close with code 4000 + HTTP status. Standard input is
 * bounded by the client: at most `EXEC_STDIN_WINDOW_BYTES` beyond the last `stdin_ack` (or the attached offset); more is
 * a protocol error. After `exit` the server waits a little for the last acknowledgement, then closes with 1000.
 */
import { Type, type Static } from "typebox";

export const TerminalSizeSchema = Type.Object(
  { rows: Type.Integer({ minimum: 1, maximum: 65535 }), cols: Type.Integer({ minimum: 1, maximum: 65535 }) },
  { additionalProperties: false },
);

export const CreateExecRequestSchema = Type.Object(
  {
    command: Type.Array(Type.String({ maxLength: 131072 }), { minItems: 1, maxItems: 4096 }),
    env: Type.Optional(Type.Record(Type.String({ pattern: "^[^=\\u0000]+$" }), Type.String())),
    working_dir: Type.Optional(Type.String({ maxLength: 4096 })),
    user: Type.Optional(Type.String({ maxLength: 255, description: "name, uid, or uid:gid; default: the image's user" })),
    stdin: Type.Optional(Type.Boolean({ default: false, description: "Keep standard input open for an attached client" })),
    tty: Type.Optional(TerminalSizeSchema),
    timeout_seconds: Type.Optional(Type.Number({ exclusiveMinimum: 0, maximum: 604800, description: "Killed after this long" })),
  },
  { additionalProperties: false, $id: "CreateExecRequest" },
);
export type CreateExecRequest = Static<typeof CreateExecRequestSchema>;

export const ExecExitSchema = Type.Object({
  code: Type.Optional(Type.Integer()),
  signal: Type.Optional(Type.String({ description: "Name such as SIGKILL, when a signal ended it" })),
  timed_out: Type.Boolean(),
});
export type ExecExit = Static<typeof ExecExitSchema>;

export const ExecViewSchema = Type.Object(
  {
    id: Type.String({ description: "`workload` is the image's own entrypoint" }),
    command: Type.Array(Type.String()),
    pid: Type.Optional(Type.Integer()),
    state: Type.Union([Type.Literal("running"), Type.Literal("exited")]),
    exit: Type.Optional(ExecExitSchema),
    tty: Type.Boolean(),
    stdout_acked: Type.Integer(),
    stdout_bytes: Type.Integer(),
    stderr_acked: Type.Integer(),
    stderr_bytes: Type.Integer(),
  },
  { $id: "Exec" },
);
export type ExecView = Static<typeof ExecViewSchema>;

export const SignalExecRequestSchema = Type.Object(
  { signal: Type.String({ pattern: "^(SIG)?[A-Z0-9+]{1,16}$|^[0-9]{1,2}$", default: "SIGTERM" }) },
  { additionalProperties: false, $id: "SignalExecRequest" },
);
export type SignalExecRequest = Static<typeof SignalExecRequestSchema>;

/** One-shot exec of the reference API: runs to its end and answers with everything. Output beyond 1 MiB a stream is cut and says so. */
export const AgentExecRequestSchema = Type.Object(
  {
    command: Type.Union([Type.String({ minLength: 1 }), Type.Array(Type.String(), { minItems: 1 })], {
      description: "A string is run by /bin/sh -c",
    }),
    timeout_seconds: Type.Optional(Type.Number({ exclusiveMinimum: 0, maximum: 3600, default: 30 })),
    env: Type.Optional(Type.Record(Type.String(), Type.String())),
    working_dir: Type.Optional(Type.String()),
    user: Type.Optional(Type.String()),
    stdin: Type.Optional(Type.String({ maxLength: 1048576 })),
  },
  { additionalProperties: false, $id: "AgentExecRequest" },
);
export type AgentExecRequest = Static<typeof AgentExecRequestSchema>;
export const AgentExecResultSchema = Type.Object(
  {
    stdout: Type.String(),
    stderr: Type.String(),
    exit: ExecExitSchema,
    stdout_truncated: Type.Boolean(),
    stderr_truncated: Type.Boolean(),
    duration_ms: Type.Number(),
  },
  { $id: "AgentExecResult" },
);
export type AgentExecResult = Static<typeof AgentExecResultSchema>;

/** Most bytes of standard input a client may have sent beyond what is acknowledged. */
export const EXEC_STDIN_WINDOW_BYTES = 262_144;

export type ExecClientMessage =
  | { readonly type: "ack"; readonly stdout: number; readonly stderr: number }
  | { readonly type: "stdin_end"; readonly offset: number }
  | { readonly type: "resize"; readonly rows: number; readonly cols: number }
  | { readonly type: "signal"; readonly signal: string };

export type ExecServerMessage =
  | { readonly type: "attached"; readonly stdin_offset: number }
  | { readonly type: "stdin_ack"; readonly offset: number }
  | { readonly type: "exit"; readonly exit: ExecExit; readonly stdout_bytes: number; readonly stderr_bytes: number }
  | { readonly type: "error"; readonly error: { readonly code: string; readonly class: string; readonly message: string } };

export const FileStatSchema = Type.Object(
  {
    path: Type.String(),
    type: Type.Union([Type.Literal("file"), Type.Literal("directory"), Type.Literal("symlink"), Type.Literal("other")]),
    size: Type.Integer(),
    mode: Type.Integer({ description: "Permission bits" }),
    uid: Type.Integer(),
    gid: Type.Integer(),
    modified_at: Type.String({ format: "date-time" }),
    target: Type.Optional(Type.String()),
  },
  { $id: "FileStat" },
);
export type FileStat = Static<typeof FileStatSchema>;

export const FileEventSchema = Type.Object(
  {
    type: Type.Union(["created", "modified", "removed", "moved_from", "moved_to", "attributes", "overflow"].map((t) => Type.Literal(t))),
    name: Type.String(),
  },
  { $id: "FileEvent" },
);
export type FileEvent = {
  readonly type: "created" | "modified" | "removed" | "moved_from" | "moved_to" | "attributes" | "overflow";
  readonly name: string;
};

export const MakeDirectoryRequestSchema = Type.Object(
  {
    path: Type.String({ pattern: "^/", maxLength: 4096 }),
    parents: Type.Optional(Type.Boolean({ default: false, description: "Make missing parents; an existing directory is no error" })),
    mode: Type.Optional(Type.Integer({ minimum: 0, maximum: 0o7777, description: "Permission bits" })),
  },
  { additionalProperties: false, $id: "MakeDirectoryRequest" },
);
export type MakeDirectoryRequest = Static<typeof MakeDirectoryRequestSchema>;

export const RenameFileRequestSchema = Type.Object(
  { from: Type.String({ pattern: "^/", maxLength: 4096 }), to: Type.String({ pattern: "^/", maxLength: 4096 }) },
  { additionalProperties: false, $id: "RenameFileRequest" },
);
export type RenameFileRequest = Static<typeof RenameFileRequestSchema>;

export const PingResultSchema = Type.Object({ rtt_ms: Type.Number(), version: Type.String() }, { $id: "PingResult" });
export type PingResult = Static<typeof PingResultSchema>;

/** What to launch and who a process is. The same shapes as in `native/host-helper/src/launch/spec.rs`. */

/** All four together never name another process, however long the daemon was away. */
export interface ProcessIdentity {
  readonly pid: number;
  readonly startTimeTicks: number;
  readonly bootId: string;
  readonly pidNamespaceInode: number;
}

export interface ProcessExit {
  readonly code?: number;
  /** For example `SIGKILL`. */
  readonly signal?: string;
  /** It ended while nobody who could be told was there. */
  readonly unknown?: true;
}

export type SignalName = "SIGTERM" | "SIGKILL" | "SIGINT" | "SIGHUP" | "SIGQUIT" | "SIGUSR1" | "SIGUSR2" | "SIGSTOP" | "SIGCONT";

export type ProcessMount =
  | { readonly kind: "bind"; readonly source: string; readonly target: string; readonly readonly?: boolean; readonly optional?: boolean }
  | { readonly kind: "tmpfs"; readonly target: string; readonly sizeBytes?: number }
  /** Shows only the process's own pid namespace when it has one. */
  | { readonly kind: "proc"; readonly target: string }
  | { readonly kind: "symlink"; readonly source: string; readonly target: string };

export type ProcessOutput =
  | { readonly kind: "null" }
  /** Appended to, created 0600, not bounded. */
  | { readonly kind: "file"; readonly path: string }
  /** At most `(keep + 1) * maxBytes` on disk; `path`, `path.1`, …; made with the first byte. Its folder is the daemon's. */
  | { readonly kind: "rotated"; readonly path: string; readonly maxBytes: number; readonly keep: number };

export type ProcessDescriptor =
  /** The write end of a bounded log: for QEMU, `-add-fd` and a chardev's `logfile=/dev/fdset/N`. */
  | { readonly kind: "rotated"; readonly fd: number; readonly path: string; readonly maxBytes: number; readonly keep: number }
  /** Opened with the daemon's rights. */
  | { readonly kind: "open"; readonly fd: number; readonly path: string; readonly write?: boolean };

export interface ProcessSpec {
  /** `argv[0]` is an absolute path, looked up in the new root. */
  readonly argv: readonly string[];
  /** The whole environment; nothing is inherited. */
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Absent: the daemon's ids, still without capabilities. */
  readonly credentials?: { readonly uid: number; readonly gid: number; readonly groups?: readonly number[] };
  readonly namespaces?: {
    readonly pid?: boolean;
    readonly ipc?: boolean;
    readonly uts?: boolean;
    /** `new`, or the path of an existing one. Absent: the host's. */
    readonly net?: string;
  };
  /** Absent: the host's root. Else only these, read-only at the top, and a /dev with null, zero, full, random, urandom. */
  readonly root?: {
    readonly mounts: readonly ProcessMount[];
    readonly devices?: readonly { readonly path: string; readonly optional?: boolean }[];
  };
  /** `VmCgroup.dirs`. */
  readonly cgroups?: readonly string[];
  readonly rlimits?: Readonly<Partial<Record<"nofile" | "nproc" | "memlock" | "core" | "fsize" | "as" | "stack", number>>>;
  /** Without `CAP_`. Everything else is dropped, and no exec can gain any. */
  readonly keepCapabilities?: readonly string[];
  readonly oomScoreAdj?: number;
  readonly stdout?: ProcessOutput;
  readonly stderr?: ProcessOutput | { readonly kind: "stdout" };
  /** Numbers 3 to 63. Every other descriptor is closed. */
  readonly fds?: readonly ProcessDescriptor[];
}

export function isSameProcess(a: ProcessIdentity, b: ProcessIdentity): boolean {
  return a.pid === b.pid && a.startTimeTicks === b.startTimeTicks && a.bootId === b.bootId && a.pidNamespaceInode === b.pidNamespaceInode;
}

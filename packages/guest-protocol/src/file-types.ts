/** Files as the guest describes them. */
import { readText, Reply } from "./reply.ts";

const FILE_TYPES = ["file", "directory", "symlink", "fifo", "socket", "block", "char"] as const;
export type GuestFileType = (typeof FILE_TYPES)[number];

export interface GuestFileStat {
  readonly path: string;
  readonly type: GuestFileType;
  readonly size: number;
  /** Permission bits. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeMs: number;
  /** Where a symbolic link points. */
  readonly target?: string | undefined;
}

const EVENT_KINDS = [
  "modified",
  "attributes",
  "closed",
  "moved_from",
  "moved_to",
  "created",
  "removed",
  "self_removed",
  "self_moved",
  "overflow",
] as const;

export interface GuestFileEvent {
  readonly kind: (typeof EVENT_KINDS)[number];
  /** In the watched directory; empty for the watched path itself. */
  readonly name: string;
  readonly directory: boolean;
}

export interface GuestDiskUsage {
  readonly totalBytes: number;
  readonly freeBytes: number;
  readonly availableBytes: number;
  readonly inodes: number;
  readonly inodesFree: number;
}

export function parseFileStat(reply: Reply): GuestFileStat {
  return {
    path: readText(reply.text("path")),
    type: reply.oneOf("type", FILE_TYPES),
    size: reply.count("size"),
    mode: reply.count("mode"),
    uid: reply.count("uid"),
    gid: reply.count("gid"),
    mtimeMs: reply.integer("mtimeMs"),
    target: reply.optionalText("target"),
  };
}

export function parseFileEvent(item: unknown): GuestFileEvent {
  const reply = new Reply(item);
  return { kind: reply.oneOf("kind", EVENT_KINDS), name: reply.text("name"), directory: reply.flag("directory") };
}

export function parseDiskUsage(reply: Reply): GuestDiskUsage {
  return {
    totalBytes: reply.count("totalBytes"),
    freeBytes: reply.count("freeBytes"),
    availableBytes: reply.count("availableBytes"),
    inodes: reply.count("inodes"),
    inodesFree: reply.count("inodesFree"),
  };
}

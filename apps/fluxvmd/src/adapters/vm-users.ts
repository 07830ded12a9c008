/**
 * Which user ids new VMs get. The configured range is shared by every daemon on the host, and a uid must never be that of
 * two VMs: they could signal each other, and firewall rules go by it. So each instance begins at a place of its own in
 * the range, taken from its id, and passes over places where somebody else's processes run.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import type { VmUsers } from "@fluxvm/manager";

/** Uids of one place. An instance with more VMs goes on into the next one. */
const PLACE_SIZE = 1024;

export interface UidRange {
  readonly start: number;
  readonly count: number;
}

/** @param foreign uids in use by processes that are not of this instance's VMs */
export function planVmUsers(range: UidRange, instanceId: string, foreign: ReadonlySet<number>): VmUsers {
  const places = Math.max(1, Math.floor(range.count / PLACE_SIZE));
  const first = createHash("sha256").update(instanceId).digest().readUInt32BE(0) % places;
  const occupied = new Set([...foreign].map((uid) => Math.floor((uid - range.start) / PLACE_SIZE)));
  const free = Array.from({ length: places }, (_, i) => (first + i) % places).find((place) => !occupied.has(place));
  const offset = (free ?? first) * PLACE_SIZE;
  return { kind: "range", start: range.start + offset, count: range.count - offset };
}

/** Real user ids of the host's processes within the range. */
export function listUsedUids(range: UidRange): ReadonlySet<number> {
  const used = new Set<number>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const uid = Number(/^Uid:\s+(\d+)/m.exec(readStatus(name))?.[1]);
    if (uid >= range.start && uid < range.start + range.count) used.add(uid);
  }
  return used;
}

function readStatus(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/status`, "utf8");
  } catch {
    return ""; // it ended meanwhile
  }
}

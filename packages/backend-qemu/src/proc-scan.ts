/** What /proc says about QEMU processes: which are of our instance, and what one uses. */
import { readdir, readFile, readlink } from "node:fs/promises";
import type { CallOptions } from "@fluxvm/core";
import type { FoundVmProcess, VmStats } from "@fluxvm/vmm";
import { findMarker } from "./marker.ts";

/** USER_HZ, fixed in the kernel's interface on Linux (times(2)). */
const TICKS_PER_SECOND = 100;
const PAGE_BYTES = 4096;

/** Processes that carry the instance's mark; ones that end meanwhile are left out. */
export async function listMarked(instanceId: string, options: CallOptions): Promise<readonly FoundVmProcess[]> {
  const found: FoundVmProcess[] = [];
  for (const entry of await readdir("/proc")) {
    if (!/^\d+$/.test(entry)) continue;
    options.signal.throwIfAborted();
    const marker = findMarker(await readText(`/proc/${entry}/cmdline`));
    if (marker?.instanceId !== instanceId) continue;
    const status = parseProcessStat(await readText(`/proc/${entry}/stat`));
    if (status !== undefined && status.state !== "Z") {
      found.push({ vmId: marker.vmId, pid: Number(entry), startTimeTicks: status.startTimeTicks });
    }
  }
  return found;
}

/** `undefined` when the pid is nobody's or another process's by now. */
export async function readProcessStats(process: { readonly pid: number; readonly startTimeTicks: number }): Promise<VmStats | undefined> {
  const status = parseProcessStat(await readText(`/proc/${process.pid}/stat`));
  const resident = (await readText(`/proc/${process.pid}/statm`)).split(" ")[1];
  if (status === undefined || status.startTimeTicks !== process.startTimeTicks || resident === undefined) return undefined;
  return { cpuTimeMs: (status.cpuTicks * 1000) / TICKS_PER_SECOND, memoryBytes: Number(resident) * PAGE_BYTES };
}

/** Inode of the pid namespace the daemon looks from. */
export async function readPidNamespaceInode(): Promise<number> {
  const link = await readlink("/proc/self/ns/pid");
  return Number(/^pid:\[(\d+)\]$/.exec(link)?.[1] ?? 0);
}

export interface ProcessStat {
  readonly state: string;
  readonly cpuTicks: number;
  readonly startTimeTicks: number;
}

/** proc_pid_stat(5): the name in parentheses may hold anything, so fields are counted from the last one. */
export function parseProcessStat(text: string): ProcessStat | undefined {
  const end = text.lastIndexOf(")");
  const fields = text
    .slice(end + 2)
    .trim()
    .split(" ");
  const [state] = fields;
  const [userTicks, systemTicks, startTimeTicks] = [fields[11], fields[12], fields[19]].map(Number);
  if (end < 0 || state === undefined || userTicks === undefined || systemTicks === undefined || startTimeTicks === undefined)
    return undefined;
  if (!Number.isSafeInteger(userTicks + systemTicks + startTimeTicks)) return undefined;
  return { state, cpuTicks: userTicks + systemTicks, startTimeTicks };
}

async function readText(path: string): Promise<string> {
  return await readFile(path, "utf8").catch(() => ""); // it ended meanwhile
}

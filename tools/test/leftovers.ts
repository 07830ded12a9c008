/**
 * Finds what a test run leaves behind on the host: processes (VMs, daemons, helpers), mounts, loop devices, cgroups,
 * network namespaces, nftables tables and links.
 *
 * Processes are known by a variable of their environment or by the run's own temporary folder in their command line,
 * so other people's machines are never touched. Things without an environment are compared with a snapshot from before.
 */
import { execFileSync } from "node:child_process";
import { existsSync, globSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export const RUN_VARIABLE = "FLUXVM_TEST_RUN";

export interface RunMark {
  readonly id: string;
  /** The folder that TMPDIR names during the run. */
  readonly folder: string;
}

export type HostSnapshot = ReadonlySet<string>;

export interface LeftProcess {
  readonly pid: number;
  readonly command: string;
}

/** Named things of ours that exist on the host now. */
export function takeSnapshot(): HostSnapshot {
  const named = [...listCgroups(), ...listNamed("/run/netns", "network namespace"), ...listTables(), ...listLinks()];
  return new Set([...named, ...listMachines(), ...listOrphans()]);
}

/** Processes of the run that are still there; the caller and its ancestors are none of them. */
export function findProcesses(mark: RunMark): LeftProcess[] {
  return listCommands()
    .filter(({ pid, command }) => pid !== process.pid && command !== "")
    .filter(({ pid, command }) => command.includes(mark.folder) || readProc(String(pid), "environ").includes(mark.id))
    .filter(({ pid }) => !isZombie(pid));
}

/** Mounts and loop devices of the run. */
export function findMounts(mark: RunMark): string[] {
  const mounts = readFileSync("/proc/self/mountinfo", "utf8").split("\n");
  const mounted = mounts.filter((line) => line.includes(mark.folder)).map((line) => `mount ${line.split(" ")[4]}`);
  const loops = globSync("/sys/block/loop*/loop/backing_file").filter((file) => readText(file).includes(mark.folder));
  return [...mounted, ...loops.map((file) => `loop device of ${readText(file).trim()}`)];
}

/** Named things that were not there before, but for those of daemons that run now. */
export function findThings(before: HostSnapshot): string[] {
  const busy = listLiveInstances();
  return [...takeSnapshot()].filter((thing) => !before.has(thing) && !busy.some((id) => thing.replaceAll("-", "_").includes(id)));
}

/** Ids of daemons that run now, with `_` for `-` as nftables writes them: a daemon of the run itself shows as a process. */
function listLiveInstances(): string[] {
  const commands = listCommands().map(({ command }) => command.split(" "));
  const daemons = commands.filter((words) => words.some((word) => word.endsWith("/fluxvmd/src/main.ts")) && words.includes("serve"));
  const folders = daemons.map((words) => (words.includes("--state-dir") ? words[words.indexOf("--state-dir") + 1] : "/var/lib/fluxvm"));
  const ids = folders.map((folder) => readText(join(folder ?? "", "instance")).trim());
  return ids.filter((id) => id !== "").map((id) => id.replaceAll("-", "_"));
}

/** VMM processes of any instance; the instance's id is in the name, so those of running daemons can be told apart. */
function listMachines(): string[] {
  return listCommands().flatMap(({ pid, command }) => {
    const marker = /guest=fluxvm\/\S+/.exec(command)?.[0];
    return marker === undefined ? [] : [`process ${pid} ${marker}`];
  });
}

/** Helper and log writer processes that nobody waits for. With a daemon running they may be those of its machines. */
function listOrphans(): string[] {
  if (listLiveInstances().length > 0) return [];
  const helpers = listCommands().filter(({ command }) => /\/fluxvm-host-helper( |$)/.test(command));
  return helpers
    .filter(({ pid }) => /^\d+ \(.*\) \S 1 /.test(readProc(String(pid), "stat")))
    .map(({ pid, command }) => `process ${pid} ${command}`);
}

function listCommands(): LeftProcess[] {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.map((pid) => ({ pid: Number(pid), command: readProc(pid, "cmdline").replaceAll("\0", " ").trim() }));
}

function readProc(pid: string, file: string): string {
  return readText(`/proc/${pid}/${file}`);
}

function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return ""; // gone in between, or not ours to read
  }
}

function isZombie(pid: number): boolean {
  return /^\d+ \(.*\) Z/.test(readProc(String(pid), "stat"));
}

/** Cgroups with our name in them that hold no process: a busy one belongs to somebody else or shows as a process. */
function listCgroups(): string[] {
  const found = globSync("/sys/fs/cgroup/{*fluxvm*,*/*fluxvm*,*/*/*fluxvm*,*fluxvm*/*,*/*fluxvm*/*}/cgroup.procs");
  const folders = found.map((file) => file.slice(0, -"/cgroup.procs".length));
  // the folder `fluxvm` itself stays for the next daemon; what is in it must go
  return folders.filter((folder) => !folder.endsWith("/fluxvm") && isEmptyCgroup(folder)).map((folder) => `cgroup ${folder}`);
}

function isEmptyCgroup(folder: string): boolean {
  if (readText(join(folder, "cgroup.procs")).trim() !== "") return false;
  return globSync(`${folder}/*/cgroup.procs`).every((file) => readText(file).trim() === "");
}

function listNamed(folder: string, what: string): string[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .filter((name) => /fluxvm|^fvm|^flx/.test(name))
    .map((name) => `${what} ${name}`);
}

function listTables(): string[] {
  return runQuietly("nft", ["list", "tables"])
    .split("\n")
    .filter((line) => line.includes("fluxvm"))
    .map((line) => `nftables ${line.trim()}`);
}

function listLinks(): string[] {
  const links = listNamed("/sys/class/net", "link");
  const aliased = globSync("/sys/class/net/*/ifalias").filter((file) => readText(file).includes("fluxvm"));
  return [...links, ...aliased.map((file) => `link ${file.split("/")[4]}`)];
}

function runQuietly(command: string, args: readonly string[]): string {
  try {
    return execFileSync(command, args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  } catch {
    return ""; // not installed or not allowed: then no test can have made any
  }
}

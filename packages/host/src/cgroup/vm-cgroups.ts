/**
 * The cgroups of an instance's VMs: `fluxvm/<instanceId>/<vmId>` in every hierarchy, outside the daemon's own cgroup,
 * and found by listing. Works on v1, on v2, on both side by side, and says what is off where a controller is missing.
 */
import { constants } from "node:fs";
import { access, mkdir, readdir, readFile, rmdir, writeFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { PlatformError, type CallOptions } from "@fluxvm/core";
import type { HostHelper } from "../helper/host-helper.ts";
import { CONTROLLERS, parseCgroupMounts, type CgroupLayout, type Controller } from "./cgroup-mounts.ts";

const PREFIX = "fluxvm";
const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$/;
const CPU_PERIOD_US = 100_000;
const REMOVE_ATTEMPTS = 50;

export interface CgroupLimits {
  readonly memoryMaxBytes?: number;
  /** 100 is one whole CPU. */
  readonly cpuQuotaPercent?: number;
  /** Weight against others when CPU is short: 2 to 262144, the kernel's default is 1024. */
  readonly cpuShares?: number;
  readonly pidsMax?: number;
}

export interface VmCgroup {
  /** For `ProcessSpec.cgroups`. Empty where the host lets us make none. */
  readonly dirs: readonly string[];
  /** Limits that were asked for and do not hold, for example `cpuQuotaPercent`. */
  readonly off: readonly string[];
}

export interface CgroupUsage {
  readonly memoryBytes?: number;
  readonly cpuUsec?: number;
  readonly pids?: number;
}

export interface VmCgroups {
  readonly mode: CgroupLayout["mode"];
  /** Idempotent: makes what is missing and sets the limits anew. */
  ensureVmCgroup(vmId: string, limits: CgroupLimits, options: CallOptions): Promise<VmCgroup>;
  /** Ids of VMs with a cgroup in any hierarchy. */
  listVmCgroups(options: CallOptions): Promise<readonly string[]>;
  /** Kills every member, then removes. Idempotent. */
  removeVmCgroup(vmId: string, options: CallOptions): Promise<void>;
  readUsage(vmId: string, options: CallOptions): Promise<CgroupUsage>;
  /** Removes the instance's own folder once no VM is in it. */
  removeInstance(options: CallOptions): Promise<void>;
}

export interface VmCgroupsOptions {
  readonly instanceId: string;
  readonly helper: Pick<HostHelper, "killCgroup">;
  /** For tests; default /proc/self/mountinfo. */
  readonly mountinfoPath?: string;
}

export async function openVmCgroups(options: VmCgroupsOptions): Promise<VmCgroups> {
  checkName(options.instanceId);
  const layout = parseCgroupMounts(await readFile(options.mountinfoPath ?? "/proc/self/mountinfo", "utf8"));
  const bases = await usableBases(layout);
  return new CgroupTree({ ...options, layout, bases });
}

/** Distinct mount points of the layout that we may make folders in. */
async function usableBases(layout: CgroupLayout): Promise<readonly string[]> {
  const all = new Set([...Object.values(layout.v1), layout.v2, layout.systemd]);
  const usable: string[] = [];
  for (const base of all) {
    if (base === undefined) continue;
    try {
      await access(base, constants.W_OK);
      usable.push(base);
    } catch {
      // without root: this hierarchy is off
    }
  }
  return usable;
}

function checkName(name: string): void {
  if (!NAME.test(name)) throw new PlatformError("REQUEST_INVALID", `Not a cgroup name: ${name}`);
}

class CgroupTree implements VmCgroups {
  readonly mode: CgroupLayout["mode"];
  readonly #layout: CgroupLayout;
  readonly #bases: readonly string[];
  readonly #instanceId: string;
  readonly #helper: Pick<HostHelper, "killCgroup">;

  constructor(options: VmCgroupsOptions & { readonly layout: CgroupLayout; readonly bases: readonly string[] }) {
    this.mode = options.bases.length === 0 ? "none" : options.layout.mode;
    this.#layout = options.layout;
    this.#bases = options.bases;
    this.#instanceId = options.instanceId;
    this.#helper = options.helper;
  }

  async ensureVmCgroup(vmId: string, limits: CgroupLimits, options: CallOptions): Promise<VmCgroup> {
    checkName(vmId);
    options.signal.throwIfAborted();
    const dirs = this.#dirsOf(vmId);
    for (const base of this.#bases) await this.#makeDir(base, vmId);
    await this.#weighAll();
    const off: string[] = [];
    for (const write of planLimits(limits, this.mode)) {
      const dir = this.#controllerDir(write.controller, vmId);
      if (dir === undefined || !(await tryWrite(join(dir, write.file), write.value))) off.push(write.limit);
    }
    return { dirs, off: [...new Set(off)] };
  }

  async listVmCgroups(options: CallOptions): Promise<readonly string[]> {
    const found = new Set<string>();
    for (const base of this.#bases) {
      options.signal.throwIfAborted();
      for (const entry of await listDirs(join(base, PREFIX, this.#instanceId))) found.add(entry);
    }
    return [...found].toSorted();
  }

  async removeVmCgroup(vmId: string, options: CallOptions): Promise<void> {
    checkName(vmId);
    for (const dir of this.#dirsOf(vmId)) {
      await this.#helper.killCgroup(dir, options);
      await removeDir(dir, options);
    }
  }

  async readUsage(vmId: string, options: CallOptions): Promise<CgroupUsage> {
    options.signal.throwIfAborted();
    const v2 = this.mode === "v2";
    const memory = await this.#readNumber("memory", vmId, v2 ? "memory.current" : "memory.usage_in_bytes");
    const pids = await this.#readNumber("pids", vmId, "pids.current");
    const cpu = v2 ? await this.#readCpuStat(vmId) : await this.#readNumber("cpuacct", vmId, "cpuacct.usage");
    return {
      ...(memory === undefined ? {} : { memoryBytes: memory }),
      ...(cpu === undefined ? {} : { cpuUsec: v2 ? cpu : Math.round(cpu / 1000) }),
      ...(pids === undefined ? {} : { pids }),
    };
  }

  async removeInstance(options: CallOptions): Promise<void> {
    for (const base of this.#bases) {
      options.signal.throwIfAborted();
      await rmdir(join(base, PREFIX, this.#instanceId)).catch(() => undefined); // a VM is still in it, or it is gone
      await rmdir(join(base, PREFIX)).catch(() => undefined); // another instance is still in it
    }
  }

  #dirsOf(vmId: string): string[] {
    return this.#bases.map((base) => join(base, PREFIX, this.#instanceId, vmId));
  }

  #controllerDir(controller: Controller, vmId: string): string | undefined {
    const base = this.mode === "v2" ? this.#layout.v2 : this.#layout.v1[controller];
    return base === undefined || !this.#bases.includes(base) ? undefined : join(base, PREFIX, this.#instanceId, vmId);
  }

  async #makeDir(base: string, vmId: string): Promise<void> {
    let dir = base;
    for (const part of [PREFIX, this.#instanceId, vmId]) {
      if (base === this.#layout.v2 && this.mode === "v2") await enableControllers(dir);
      dir = join(dir, part);
      try {
        await mkdir(dir);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error; // node:fs rejects with these
      }
    }
  }

  /**
   * The common parent competes as one with each process outside of any group. At the default weight all VMs together
   * would get no more than one of those; with this they get as much as if each processor ran one VM.
   */
  async #weighAll(): Promise<void> {
    const base = this.mode === "v2" ? this.#layout.v2 : this.#layout.v1.cpu;
    if (base === undefined) return;
    const { file, value } = planOverallWeight(this.mode, availableParallelism());
    await tryWrite(join(base, PREFIX, file), value); // without it VMs run, only slower on a busy host
  }

  async #readNumber(controller: Controller, vmId: string, file: string): Promise<number | undefined> {
    const dir = this.#controllerDir(controller, vmId);
    if (dir === undefined) return undefined;
    const text = await readFile(join(dir, file), "utf8").catch(() => "");
    return /^\d+\s*$/.test(text) ? Number(text) : undefined;
  }

  async #readCpuStat(vmId: string): Promise<number | undefined> {
    const dir = this.#controllerDir("cpu", vmId);
    const text = dir === undefined ? "" : await readFile(join(dir, "cpu.stat"), "utf8").catch(() => "");
    const match = /^usage_usec (\d+)$/m.exec(text);
    return match === null ? undefined : Number(match[1]);
  }
}

interface LimitWrite {
  readonly limit: keyof CgroupLimits;
  readonly controller: Controller;
  readonly file: string;
  readonly value: string;
}

/** Weight of all VMs of the host together: the default weight once per processor and once more. */
export function planOverallWeight(mode: CgroupLayout["mode"], processors: number): { readonly file: string; readonly value: string } {
  const [file, ordinary, max] = mode === "v2" ? ["cpu.weight", 100, 10_000] : ["cpu.shares", 1024, 262_144];
  return { file, value: String(Math.min(max, ordinary * (processors + 1))) };
}

/** What to write for the limits, v1 or v2. Pure. The v2 weight is what the kernel's documentation maps shares to. */
export function planLimits(limits: CgroupLimits, mode: CgroupLayout["mode"]): readonly LimitWrite[] {
  const v2 = mode === "v2";
  const writes: LimitWrite[] = [];
  const { memoryMaxBytes, cpuQuotaPercent, cpuShares, pidsMax } = limits;
  const add = (limit: keyof CgroupLimits, controller: Controller, file: string, value: string | number): void => {
    writes.push({ limit, controller, file, value: String(value) });
  };
  if (memoryMaxBytes !== undefined) add("memoryMaxBytes", "memory", v2 ? "memory.max" : "memory.limit_in_bytes", memoryMaxBytes);
  if (cpuQuotaPercent !== undefined) {
    const quotaUs = Math.round((cpuQuotaPercent * CPU_PERIOD_US) / 100);
    if (v2) add("cpuQuotaPercent", "cpu", "cpu.max", `${quotaUs} ${CPU_PERIOD_US}`);
    else add("cpuQuotaPercent", "cpu", "cpu.cfs_quota_us", quotaUs);
  }
  if (cpuShares !== undefined) {
    const shares = Math.min(262_144, Math.max(2, Math.round(cpuShares)));
    const weight = 1 + Math.round(((shares - 2) * 9999) / 262_142);
    add("cpuShares", "cpu", v2 ? "cpu.weight" : "cpu.shares", v2 ? weight : shares);
  }
  if (pidsMax !== undefined) add("pidsMax", "pids", "pids.max", pidsMax);
  return writes;
}

async function enableControllers(dir: string): Promise<void> {
  const available = await readFile(join(dir, "cgroup.controllers"), "utf8").catch(() => "");
  for (const controller of CONTROLLERS) {
    if (available.split(/\s+/).includes(controller)) await tryWrite(join(dir, "cgroup.subtree_control"), `+${controller}`);
  }
}

async function tryWrite(path: string, value: string): Promise<boolean> {
  try {
    await writeFile(path, value);
    return true;
  } catch {
    return false;
  }
}

async function listDirs(dir: string): Promise<readonly string[]> {
  const entries = await readdir(dir, { withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
}

/** A cgroup whose last member has just died may be busy for a moment. */
async function removeDir(dir: string, options: CallOptions): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    options.signal.throwIfAborted();
    try {
      await rmdir(dir);
      return;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException; // node:fs rejects with these
      if (code === "ENOENT") return;
      if (code !== "EBUSY" || attempt >= REMOVE_ATTEMPTS) throw error;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
}

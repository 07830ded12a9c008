/**
 * One directory per VM under `<state_dir>/vms`.
 *
 * It belongs to the daemon's user, its group is the VM's own, and it is sticky: the VMM makes its sockets in it, and
 * can neither remove nor replace what the daemon put there. The console's log is the daemon's file in it.
 *
 * The VM's cgroup counts as part of it: listed with it and removed after it, since a crash may leave one alone.
 */
import { chmod, chown, lstat, mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { isId, PlatformError } from "@fluxvm/core";
import type { Owner, Workspaces } from "@fluxvm/engine";
import { fsyncDir, toFileError, type VmCgroups } from "@fluxvm/host";

/** Sticky, and for nobody but the daemon and the VM's group. */
const MODE = 0o1770;

export interface WorkspacesOptions {
  readonly stateDir: string;
  readonly cgroups: Pick<VmCgroups, "listVmCgroups" | "removeVmCgroup">;
}

export function createWorkspaces(options: WorkspacesOptions): Workspaces {
  const { cgroups } = options;
  const root = join(options.stateDir, "vms");
  const pathOf = (vmId: string): string => {
    if (!isId("vm", vmId)) throw new PlatformError("INTERNAL", "Not the id of a VM", { details: { vmId } });
    return join(root, vmId);
  };
  return {
    async ensure(vmId, owner, { signal }) {
      signal.throwIfAborted();
      const path = pathOf(vmId);
      await ensureDirectory(path, owner);
      await fsyncDir(root);
      return { path };
    },
    async remove(vmId, { signal }) {
      signal.throwIfAborted();
      await cgroups.removeVmCgroup(vmId, { signal });
      await rm(pathOf(vmId), { recursive: true, force: true });
    },
    async list({ signal }) {
      signal.throwIfAborted();
      const names = await readdir(root).catch((error: NodeJS.ErrnoException) => {
        if (error.code === "ENOENT") return [];
        throw toFileError(error, `list ${root}`);
      });
      const all = new Set([...names, ...(await cgroups.listVmCgroups({ signal }))]);
      return [...all].filter((name) => isId("vm", name));
    },
  };
}

async function ensureDirectory(path: string, owner: Owner): Promise<void> {
  try {
    await mkdir(path, { recursive: true, mode: 0o700 });
    if (!(await lstat(path)).isDirectory()) throw new PlatformError("STATE_DIR_UNUSABLE", `Cannot make ${path}: something else is there`);
    const isRoot = process.getuid?.() === 0;
    if (isRoot) await chown(path, 0, owner.gid);
    await chmod(path, isRoot ? MODE : 0o700);
  } catch (error) {
    throw error instanceof PlatformError ? error : toFileError(error, `make the directory of a VM`);
  }
}

/**
 * Picks the modules a guest needs from a `lib/modules/VERSION` directory, with what they depend on, in an order in
 * which they can be loaded. Dependencies are read from the modules themselves, so no `depmod` is needed. What the
 * kernel has built in, or does not have at all, is left out.
 */
import { readdir, readFile, realpath } from "node:fs/promises";
import { join } from "node:path";
import { PlatformError } from "@fluxvm/core";
import { decompress } from "./decompress.ts";
import { readModuleNeeds } from "./elf.ts";

/** Loaded before the root file system is mounted: each costs boot time. */
export const BOOT_MODULES = ["virtio_pci", "virtio_mmio", "virtio_blk", "virtio_console", "ext4", "virtio_net"] as const;

/** Loaded before the root file system is mounted where the agent's channel is a vsock. */
export const VSOCK_MODULES = ["vmw_vsock_virtio_transport"] as const;

/** Loaded before the root file system is mounted where there is a NoCloud seed: the image has no modules of this kernel. */
export const SEED_MODULES = ["isofs", "nls_utf8"] as const;

/**
 * Loaded beside the image's start, in no hurry: for what it may mount or use. `pvpanic_mmio` first: it drives the device
 * that the firmware's tables name, and a panic before it is there looks like a reset. At boot it cost 90 ms under emulation.
 */
export const LATE_MODULES = [
  "pvpanic_mmio",
  "virtio_rng",
  "virtio_balloon",
  "qemu_fw_cfg",
  "overlay",
  "fuse",
  "virtiofs",
  "9p",
  "9pnet_virtio",
  "isofs",
  "vfat",
  "nls_cp437",
  "nls_iso8859_1",
  "nls_utf8",
  "nls_ascii",
  "af_packet",
  "unix_diag",
] as const;

export interface GuestModule {
  /** As `modprobe` calls it, with underscores. */
  readonly name: string;
  /** Relative to the modules directory, uncompressed: `kernel/drivers/block/virtio_blk.ko`. */
  readonly path: string;
  readonly content: Buffer;
}

/** Each list can be loaded after `boot` whatever came of the others, so a module may be in several. */
export interface GuestModules {
  readonly boot: readonly GuestModule[];
  readonly vsock: readonly GuestModule[];
  readonly seed: readonly GuestModule[];
  readonly late: readonly GuestModule[];
}

export const NO_MODULES: GuestModules = { boot: [], vsock: [], seed: [], late: [] };

const MAX_FILES = 50_000;
const MAX_DEPTH = 12;

/** @throws PlatformError `KERNEL_INVALID` when the directory is no modules directory */
export async function collectModules(directory: string, signal: AbortSignal): Promise<GuestModules> {
  const files = await findModules(directory);
  if (files.size === 0) throw new PlatformError("KERNEL_INVALID", `There is no module in ${JSON.stringify(directory)}`);
  const loaded = new Map<string, GuestModule>();
  const boot = await resolve(BOOT_MODULES, { directory, files, loaded, signal });
  const after = async (names: readonly string[]): Promise<GuestModule[]> =>
    await resolve(names, { directory, files, loaded: new Map(loaded), signal });
  return { boot, vsock: await after(VSOCK_MODULES), seed: await after(SEED_MODULES), late: await after(LATE_MODULES) };
}

interface Resolution {
  readonly directory: string;
  readonly files: ReadonlyMap<string, string>;
  /** Chosen already, in load order. */
  readonly loaded: Map<string, GuestModule>;
  readonly signal: AbortSignal;
}

async function resolve(names: readonly string[], resolution: Resolution): Promise<GuestModule[]> {
  const chosen: GuestModule[] = [];
  for (const name of names) await visit(name, resolution, { chosen, path: new Set() });
  return chosen;
}

async function visit(
  name: string,
  resolution: Resolution,
  state: { readonly chosen: GuestModule[]; readonly path: Set<string> },
): Promise<void> {
  const key = normalize(name);
  const file = resolution.files.get(key);
  if (file === undefined || resolution.loaded.has(key) || state.path.has(key)) return;
  state.path.add(key);
  const stored = await readFile(join(resolution.directory, file));
  const content = await decompress(stored, `the module ${JSON.stringify(file)}`, resolution.signal);
  const needs = readModuleNeeds(content);
  for (const needed of [...needs.soft, ...needs.depends]) await visit(needed, resolution, state);
  const chosen: GuestModule = { name: key, path: file.replace(/\.(xz|zst|gz)$/, ""), content };
  resolution.loaded.set(key, chosen);
  state.chosen.push(chosen);
}

/** Name to relative path. Symbolic links (`build`, `source`) are not followed. */
async function findModules(directory: string): Promise<Map<string, string>> {
  const root = await realpath(directory).catch((error: unknown) => {
    throw new PlatformError("IMAGE_SOURCE_UNREACHABLE", `Cannot read the modules directory ${JSON.stringify(directory)}`, { cause: error });
  });
  const files = new Map<string, string>();
  const pending: { readonly path: string; readonly depth: number }[] = [{ path: "", depth: 0 }];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    for (const entry of await readdir(join(root, next.path), { withFileTypes: true })) {
      const path = next.path === "" ? entry.name : `${next.path}/${entry.name}`;
      if (entry.isDirectory() && next.depth < MAX_DEPTH) pending.push({ path, depth: next.depth + 1 });
      const match = /^(.+)\.ko(?:\.(?:xz|zst|gz))?$/.exec(entry.name);
      if (entry.isFile() && match?.[1] !== undefined) files.set(normalize(match[1]), path);
      if (files.size > MAX_FILES)
        throw new PlatformError("KERNEL_INVALID", `There are more than ${MAX_FILES} modules in ${JSON.stringify(directory)}`);
    }
  }
  return files;
}

/** `virtio-rng` and `virtio_rng` are one module. */
function normalize(name: string): string {
  return name.replaceAll("-", "_");
}

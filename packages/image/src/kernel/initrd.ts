/**
 * The initrd: our agent as `/init`, the modules, and the lists it loads them by. Uncompressed, because an emulated
 * processor takes longer to unpack it than the host takes to copy it.
 */
import { encodeCpio, type CpioEntry } from "./cpio.ts";
import type { GuestModule, GuestModules } from "./modules.ts";

const MODULES_DIRECTORY = "lib/modules";
const EMPTY_DIRECTORIES = ["dev", "etc", "etc/fluxvm", "newroot", "proc", "run", "sys", "lib", MODULES_DIRECTORY];

export function buildInitrd(agent: Uint8Array, modules: GuestModules): Buffer {
  const every = new Map([modules.boot, modules.vsock, modules.seed, modules.late].flat().map((module) => [module.name, module]));
  const entries: CpioEntry[] = [
    ...EMPTY_DIRECTORIES.map((path): CpioEntry => ({ kind: "directory", path, mode: 0o755 })),
    { kind: "character-device", path: "dev/console", mode: 0o600, major: 5, minor: 1 },
    { kind: "file", path: "init", mode: 0o755, content: agent },
    { kind: "file", path: "etc/fluxvm/modules", mode: 0o644, content: listOf(modules.boot) },
    { kind: "file", path: "etc/fluxvm/modules.vsock", mode: 0o644, content: listOf(modules.vsock) },
    { kind: "file", path: "etc/fluxvm/modules.seed", mode: 0o644, content: listOf(modules.seed) },
    { kind: "file", path: "etc/fluxvm/modules.late", mode: 0o644, content: listOf(modules.late) },
    ...[...every.values()].map((module): CpioEntry => ({
      kind: "file",
      path: placeOf(module),
      mode: 0o644,
      content: module.content,
    })),
  ];
  return encodeCpio(entries);
}

/** Absolute paths, one a line, in load order. */
function listOf(modules: readonly GuestModule[]): Buffer {
  return Buffer.from(modules.map((module) => `/${placeOf(module)}\n`).join(""), "utf8");
}

function placeOf(module: GuestModule): string {
  return `${MODULES_DIRECTORY}/${module.name}.ko`;
}

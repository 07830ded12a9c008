/**
 * Looks at the host itself, not at the daemon's word: what of a state directory's instance is still there?
 * Used by the quickstart and by tests.
 */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** One line per thing found: processes, cgroups, nftables entries and VM directories of the instance. Empty when clean. */
export function findLeftovers(stateDir: string): string[] {
  const instance = readFileSync(join(stateDir, "instance"), "utf8").trim();
  return [...findProcesses(instance), ...findCgroups(instance), ...findFirewall(instance), ...findWorkspaces(stateDir)];
}

/** VMM processes (not the daemon and its host-helper) that carry the instance's id in their arguments. */
function findProcesses(instance: string): string[] {
  const found: string[] = [];
  for (const pid of list("/proc").filter((name) => /^\d+$/.test(name))) {
    const command = read(`/proc/${pid}/cmdline`).replaceAll("\0", " ");
    if (command.includes(instance) && command.includes("qemu")) found.push(`process ${pid} (${command.slice(0, 60)})`);
  }
  return found;
}

function findCgroups(instance: string): string[] {
  const found: string[] = [];
  const walk = (path: string, depth: number): void => {
    for (const name of list(path)) {
      const child = join(path, name);
      if (name.startsWith("vm-") && child.includes(instance)) found.push(`cgroup ${child}`);
      else if (depth > 0 && !name.includes(".")) walk(child, depth - 1);
    }
  };
  walk("/sys/fs/cgroup", 4);
  return found;
}

function findFirewall(instance: string): string[] {
  let rules = "";
  try {
    rules = execFileSync("nft", ["list", "ruleset"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  } catch {
    return []; // no nftables here, so nothing of ours in it
  }
  const suffix = instance.replace(/^inst-/, "");
  const table = rules.split(/^(?=table )/m).find((text) => text.includes(suffix));
  const elements = table === undefined ? [] : [...table.matchAll(/elements = \{([^}]*)\}/g)].map((match) => match[1]?.trim() ?? "");
  return elements.filter((text) => /\b2\d{6}\b/.test(text)).map((text) => `firewall entry ${text.slice(0, 60)}`);
}

function findWorkspaces(stateDir: string): string[] {
  return [...list(join(stateDir, "vms")), ...list(join(stateDir, "instances"))].map((name) => `workspace ${name}`);
}

function list(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

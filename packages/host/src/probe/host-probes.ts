/** Cgroups and nftables, used the way VMs use them. */
import { isPlatformError } from "@fluxvm/core";
import { openVmCgroups, type VmCgroups } from "../cgroup/vm-cgroups.ts";
import { runTool } from "../process/run-tool.ts";
import type { ProbeResult } from "./host-report.ts";
import { absent, found, type ProbeContext } from "./probe-context.ts";

const LIMITS = { memoryMaxBytes: 256 << 20, cpuQuotaPercent: 50, cpuShares: 512, pidsMax: 64 };

const NFT_SCRIPT = `
table inet fluxvm_probe {
  map vms { type uid : verdict; }
  chain vm { ct direction reply accept; reject with icmpx admin-prohibited; }
  chain output { type filter hook output priority 0; policy accept; meta skuid vmap @vms; }
}
add element inet fluxvm_probe vms { 65534 : jump vm }
`;

/** Makes a cgroup with every limit, puts a process in, reads its usage, kills and removes. */
export async function probeCgroup(context: ProbeContext): Promise<ProbeResult> {
  const cgroups = await openVmCgroups({ instanceId: `probe-${process.pid}`, helper: context.helper });
  if (cgroups.mode === "none") {
    const advice = "Mount cgroups, or run the daemon as root. VMs run without limits otherwise.";
    return absent("cgroup", "missing", { detail: "no hierarchy can be written", advice });
  }
  const cleanup = { signal: AbortSignal.timeout(20_000) };
  try {
    return await useCgroup(cgroups, context);
  } catch (error) {
    context.signal.throwIfAborted();
    const detail = `a process could not be put into a new cgroup: ${error instanceof Error ? error.message : String(error)}`;
    return absent("cgroup", "broken", { detail, advice: "Let the daemon run outside a container, or delegate a cgroup to it." });
  } finally {
    await cgroups.removeVmCgroup("probe", cleanup);
    await cgroups.removeInstance(cleanup);
  }
}

async function useCgroup(cgroups: VmCgroups, context: ProbeContext): Promise<ProbeResult> {
  const { dirs, off } = await cgroups.ensureVmCgroup("probe", LIMITS, context);
  const sleeper = await context.helper.launchProcess({ argv: ["/bin/sleep", "60"], cgroups: dirs }, context);
  const usage = await cgroups.readUsage("probe", context);
  await sleeper.kill(context);
  const data = { mode: cgroups.mode, limits: Object.keys(LIMITS).filter((limit) => !off.includes(limit)), off, usage: Object.keys(usage) };
  const without = off.length === 0 ? "every limit holds" : `without ${off.join(", ")}`;
  return found("cgroup", `${cgroups.mode}: a process was limited, counted and killed; ${without}`, data);
}

/** Makes the egress guard's kind of table in a network namespace of its own. */
export async function probeNftables(context: ProbeContext): Promise<ProbeResult> {
  const namespace = context.isRoot ? ["--net"] : ["--user", "--map-root-user", "--net"];
  const script = "command -v nft >/dev/null || exit 127; nft -f - && nft list map inet fluxvm_probe vms && nft --version";
  try {
    const { stdout } = await runTool({
      command: "unshare",
      args: [...namespace, "sh", "-c", script],
      input: NFT_SCRIPT,
      timeoutMs: 10_000,
      signal: context.signal,
    });
    const version = /nftables v(\S+)/.exec(stdout)?.[1];
    return found("nftables", "rules by socket owner were made in a private network namespace", { version });
  } catch (error) {
    context.signal.throwIfAborted();
    if (isPlatformError(error) && error.details["exitCode"] === 127) {
      return absent("nftables", "missing", { detail: "nft is not installed", advice: "apt-get install nftables" });
    }
    const detail = error instanceof Error ? error.message : String(error);
    return absent("nftables", "broken", {
      detail,
      advice: "Load the modules with: modprobe nf_tables nft_ct nft_reject_inet nft_fib_inet.",
    });
  }
}

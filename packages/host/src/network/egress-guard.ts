/**
 * Keeps VMs in user-mode networking away from the host: an nftables table of this instance looks at who owns a socket.
 * A VM reaches the public internet and the host's resolvers; loopback, every address of the host, link-local and
 * metadata addresses and private ranges only where its rule says so. Replies always pass, so forwarded ports work.
 *
 * Everything is in one table named after the instance: found by listing, removed in one step. Needs root and nft.
 */
import { readFile } from "node:fs/promises";
import { isPlatformError, KeyedQueue, type CallOptions } from "@fluxvm/core";
import { runTool, type ToolResult } from "../process/run-tool.ts";
import { parseResolvers, parseVms, planRemoval, planTable, planTeardown, planVm, tableName, type EgressRule } from "./egress-rules.ts";

const NFT_TIMEOUT_MS = 10_000;
const QUEUE_BOUND = 256;

export interface EgressGuard {
  /** False where the kernel cannot tell its own addresses; then only the ranges are blocked. */
  readonly blocksOwnAddresses: boolean;
  /** Idempotent. Must have resolved before the VM's process starts. @throws PlatformError `REQUEST_INVALID`, `HOST_TOOL_FAILED` */
  ensureVm(rule: EgressRule, options: CallOptions): Promise<void>;
  /** Idempotent. Only after the VM's process has ended. */
  removeVm(uid: number, options: CallOptions): Promise<void>;
  /** Uids with a rule. */
  list(options: CallOptions): Promise<readonly number[]>;
  /** The whole table. */
  removeAll(options: CallOptions): Promise<void>;
}

export interface EgressGuardOptions extends CallOptions {
  readonly instanceId: string;
  /** Where VMs may ask for names; default: the name servers of /etc/resolv.conf. */
  readonly resolvers?: readonly string[];
  /** Work in this network namespace; default: the daemon's. */
  readonly netnsPath?: string;
}

/** Makes the table (idempotent, rules of VMs are kept). @throws PlatformError `HOST_TOOL_MISSING`, `HOST_TOOL_FAILED` */
export async function openEgressGuard(options: EgressGuardOptions): Promise<EgressGuard> {
  const table = tableName(options.instanceId);
  const resolvers = options.resolvers ?? parseResolvers(await readFile("/etc/resolv.conf", "utf8").catch(() => ""));
  const nft = async (args: readonly string[], input: string | undefined, signal: AbortSignal): Promise<ToolResult> => {
    const prefix = options.netnsPath === undefined ? [] : ["nsenter", `--net=${options.netnsPath}`];
    const [command = "nft", ...rest] = [...prefix, "nft", ...args];
    return await runTool({ command, args: rest, timeoutMs: NFT_TIMEOUT_MS, signal, ...(input === undefined ? {} : { input }) });
  };
  const apply = async (script: string, signal: AbortSignal): Promise<void> => void (await nft(["-f", "-"], script, signal));
  const blocksOwnAddresses = await makeTable((ownAddresses) => apply(planTable(table, { ownAddresses }), options.signal));
  const queue = new KeyedQueue({ boundPerKey: QUEUE_BOUND });
  const exclusive = async (script: string, { signal }: CallOptions): Promise<void> => await queue.run(table, () => apply(script, signal));
  return {
    blocksOwnAddresses,
    ensureVm: async (rule, call) => await exclusive(planVm(table, rule, resolvers), call),
    removeVm: async (uid, call) => await exclusive(planRemoval(table, uid), call),
    removeAll: async (call) => await exclusive(planTeardown(table), call),
    list: async ({ signal }) => parseVms((await nft(["-j", "list", "map", "inet", table, "vms"], undefined, signal)).stdout),
  };
}

/** Kernels without nft_fib refuse the rule about own addresses. */
async function makeTable(make: (ownAddresses: boolean) => Promise<void>): Promise<boolean> {
  try {
    await make(true);
    return true;
  } catch (error) {
    if (!isPlatformError(error, "HOST_TOOL_FAILED")) throw error;
    await make(false);
    return false;
  }
}

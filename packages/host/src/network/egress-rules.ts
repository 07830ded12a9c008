/**
 * The guard's rules as nftables text. Pure: every function returns one script, which nft applies as one transaction.
 *
 *     output hook ── meta skuid vmap @vms ── vm_UID: replies accept, DNS accept, allowed accept, goto blocked_…
 *
 * Ranges are those of IANA's special-purpose address registries, and the fixed addresses of cloud metadata services
 * that lie outside them (Azure 168.63.129.16, as Microsoft documents).
 */
import { isIP } from "node:net";
import { invalidField } from "@fluxvm/core";

/** What a VM may reach besides the public internet and DNS. `private` opens the private ranges, never the host itself. */
export type EgressScope = "none" | "private" | "all";

export interface EgressRule {
  readonly uid: number;
  readonly allow: EgressScope;
  /** Open whatever the scope says, for example `10.1.0.0/16` or `127.0.0.1/32`. */
  readonly allowCidrs?: readonly string[];
}

const HOST_RANGES = {
  ip: ["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "168.63.129.16/32", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4"],
  ip6: ["::/128", "::1/128", "fe80::/10", "ff00::/8"],
};
const PRIVATE_RANGES = {
  ip: ["10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15"],
  ip6: ["fc00::/7", "fec0::/10", "64:ff9b:1::/48"],
};

/** `fluxvm_` and the instance id as nftables takes names. */
export function tableName(instanceId: string): string {
  return `fluxvm_${instanceId.replaceAll(/[^A-Za-z0-9_]/g, "_")}`;
}

/** The table and its fixed chains. `ownAddresses` also blocks every address of the host, where the kernel can tell them. */
export function planTable(table: string, options: { readonly ownAddresses: boolean }): string {
  const t = `inet ${table}`;
  const blocks = (ranges: { readonly ip: readonly string[]; readonly ip6: readonly string[] }): readonly string[] => [
    `ip daddr { ${ranges.ip.join(", ")} } goto refuse`,
    `ip6 daddr { ${ranges.ip6.join(", ")} } goto refuse`,
  ];
  const own = options.ownAddresses ? ["fib daddr type { local, broadcast, multicast, anycast } goto refuse"] : [];
  const chains: Readonly<Record<string, readonly string[]>> = {
    refuse: ["meta l4proto tcp reject with tcp reset", "reject with icmpx admin-prohibited"],
    blocked_host: [...own, ...blocks(HOST_RANGES)],
    blocked_private: [...own, ...blocks(HOST_RANGES), ...blocks(PRIVATE_RANGES)],
  };
  const lines = [`add table ${t}`, `add map ${t} vms { type uid : verdict; }`];
  for (const [chain, rules] of Object.entries(chains)) {
    lines.push(`add chain ${t} ${chain}`, `flush chain ${t} ${chain}`, ...rules.map((rule) => `add rule ${t} ${chain} ${rule}`));
  }
  lines.push(`add chain ${t} output { type filter hook output priority 0; policy accept; }`, `flush chain ${t} output`);
  lines.push(`add rule ${t} output meta skuid vmap @vms`);
  return `${lines.join("\n")}\n`;
}

/** One VM's chain, made anew. @throws PlatformError `REQUEST_INVALID` for an address that is none. */
export function planVm(table: string, rule: EgressRule, resolvers: readonly string[]): string {
  const t = `inet ${table}`;
  const chain = vmChain(rule.uid);
  const rules = ["ct direction reply accept"];
  for (const resolver of resolvers) {
    rules.push(`${family(resolver)} daddr ${resolver} meta l4proto { tcp, udp } th dport 53 accept`);
  }
  for (const [index, cidr] of (rule.allowCidrs ?? []).entries()) {
    const { family, text } = parseCidr(cidr, `allow_cidrs.${index}`);
    rules.push(`${family} daddr ${text} accept`);
  }
  const end = { none: "goto blocked_private", private: "goto blocked_host", all: "accept" }[rule.allow];
  const lines = [`add chain ${t} ${chain}`, `flush chain ${t} ${chain}`];
  lines.push(...[...rules, end].map((text) => `add rule ${t} ${chain} ${text}`));
  lines.push(`add element ${t} vms { ${rule.uid} : jump ${chain} }`);
  return `${lines.join("\n")}\n`;
}

/** Works whether or not the VM is there: what is deleted is added first. */
export function planRemoval(table: string, uid: number): string {
  const t = `inet ${table}`;
  const chain = vmChain(uid);
  const element = `${t} vms { ${uid} : jump ${chain} }`;
  return [
    `add chain ${t} ${chain}`,
    `add element ${element}`,
    `delete element ${t} vms { ${uid} }`,
    `flush chain ${t} ${chain}`,
    `delete chain ${t} ${chain}`,
    "",
  ].join("\n");
}

export function planTeardown(table: string): string {
  return `add table inet ${table}\ndelete table inet ${table}\n`;
}

/** The uids out of `nft -j list map`. */
export function parseVms(json: string): readonly number[] {
  const { nftables } = JSON.parse(json) as { nftables: readonly { map?: { elem?: readonly (readonly [number, unknown])[] } }[] }; // libnftables-json(5)
  const elements = nftables.flatMap((object) => object.map?.elem ?? []);
  return elements.map(([uid]) => uid).toSorted((a, b) => a - b);
}

/** Name servers out of resolv.conf(5), without scoped ones. */
export function parseResolvers(text: string): readonly string[] {
  const servers = text.split("\n").flatMap((line) => /^\s*nameserver\s+(\S+)/.exec(line)?.[1] ?? []);
  return servers.filter((server) => isIP(server) !== 0 && !server.includes("%"));
}

function vmChain(uid: number): string {
  if (!Number.isSafeInteger(uid) || uid <= 0) throw invalidField("uid", "must be a positive integer");
  return `vm_${uid}`;
}

function family(address: string): "ip" | "ip6" {
  return isIP(address) === 6 ? "ip6" : "ip";
}

function parseCidr(text: string, path: string): { readonly family: "ip" | "ip6"; readonly text: string } {
  const [address = "", bits, ...rest] = text.split("/");
  const version = isIP(address);
  const max = version === 6 ? 128 : 32;
  const good = version !== 0 && !address.includes("%") && rest.length === 0;
  if (!good || (bits !== undefined && !(/^\d{1,3}$/.test(bits) && Number(bits) <= max))) {
    throw invalidField(path, `"${text}" is no network such as 10.1.0.0/16`);
  }
  return { family: family(address), text: bits === undefined ? address : `${address}/${bits}` };
}

/** What a host can do, as data: printed by `fluxctl doctor`, read by backends and by admission. */

export const PROBE_NAMES = [
  "kvm",
  "vhost-net",
  "vhost-vsock",
  "tun",
  "user-namespace",
  "net-namespace",
  "cgroup",
  "nftables",
  "tc-bpf",
  "xdp",
  "bpf-lsm",
  "btf",
  "landlock",
  "seccomp",
  "userfaultfd",
  "reflink",
  "hugepages",
  "qemu",
  "virtiofsd",
  "skopeo",
  "mkfs",
] as const;
export type ProbeName = (typeof PROBE_NAMES)[number];

/** `broken`: it is there, yet using it fails. */
export type ProbeStatus = "works" | "missing" | "broken";

export interface ProbeResult {
  readonly name: ProbeName;
  readonly status: ProbeStatus;
  /** What was done and how it went. */
  readonly detail: string;
  /** What to do about it; empty when it works. */
  readonly advice: string;
  readonly data?: Readonly<Record<string, unknown>>;
}

export interface HostReport {
  readonly bootId: string;
  /** Milliseconds since the Unix epoch. */
  readonly probedAtMs: number;
  readonly kernel: string;
  readonly arch: string;
  readonly isRoot: boolean;
  /** In the order of `PROBE_NAMES`. */
  readonly results: readonly ProbeResult[];
}

/** Every name is always there. */
export function getProbe(report: HostReport, name: ProbeName): ProbeResult {
  const found = report.results.find((result) => result.name === name);
  return found ?? { name, status: "missing", detail: "not probed", advice: "Run fluxctl doctor --refresh." };
}

export function isUsable(report: HostReport, name: ProbeName): boolean {
  return getProbe(report, name).status === "works";
}

/**
 * Which package may import which: the table of the architecture, as data. Names are folders under packages/, apps/ and
 * sdk/ without their first part (`sdk/typescript` is `sdk`). `types` may be imported with `import type` alone.
 */
export interface Allowance {
  readonly imports: readonly string[];
  readonly types?: readonly string[];
}

const L0 = ["core", "telemetry", "contracts"] as const;
const L1 = ["host", "store", "bpf", "guest-channel"] as const;
const MECHANISM: Allowance = { imports: [...L0, ...L1] };
const BACKEND: Allowance = { imports: [...L0, "host", "guest-channel", "vmm"] };
const CLIENT: Allowance = { imports: [...L0, "sdk"] };
const OPERATOR: Allowance = { imports: [...L0, "imp-model", "kube-runtime", "scheduler", "sdk"] };
const GATEWAY: Allowance = { imports: [...L0, "egress", "host", "store", "sdk"] };

/** Stands for every package under packages/. */
export const ANY_PACKAGE = "*";

export const LAYERS: Readonly<Record<string, Allowance>> = {
  core: { imports: [] },
  telemetry: { imports: ["core"] },
  contracts: { imports: ["core", "telemetry"] },
  host: { imports: L0 },
  store: { imports: [...L0, "host"] },
  bpf: { imports: [...L0, "host"] },
  "guest-channel": { imports: [...L0, "host"] },
  "guest-protocol": MECHANISM,
  "container-protocol": MECHANISM,
  procbox: MECHANISM,
  image: { imports: [...MECHANISM.imports, "customize"] },
  customize: MECHANISM,
  network: MECHANISM,
  egress: MECHANISM,
  scheduler: MECHANISM,
  "kube-runtime": MECHANISM,
  "imp-model": { imports: [...L0, "scheduler"], types: ["kube-runtime"] },
  vmm: MECHANISM,
  "backend-qemu": BACKEND,
  "backend-cloud-hypervisor": BACKEND,
  "backend-firecracker": BACKEND,
  "backend-fluxvm": BACKEND,
  "backend-simulated": BACKEND,
  engine: { imports: [...L0, "vmm"], types: ["store", "image", "network", "guest-protocol"] },
  manager: {
    imports: [...L0, "engine", "scheduler"],
    types: ["store", "image", "network", "egress", "procbox", "guest-protocol", "vmm"],
  },
  api: { imports: L0 },
  "e2b-api": { imports: L0 },
  simulation: { imports: [ANY_PACKAGE] },
  sdk: { imports: ["contracts"] },
  fluxvmd: { imports: [ANY_PACKAGE] },
  fluxctl: CLIENT,
  console: CLIENT,
  mcp: CLIENT,
  fleet: { imports: [...L0, "scheduler", "store", "sdk"] },
  "imp-operator": OPERATOR,
  "imp-agent": OPERATOR,
  microvm: OPERATOR,
  "kubectl-imp": OPERATOR,
  "imp-sandbox": { imports: [...L0, "kube-runtime"] },
  "imp-sandbox-gateway": GATEWAY,
  "egress-proxy": GATEWAY,
  "containerd-shim": { imports: [...L0, "container-protocol", "guest-channel", "sdk"] },
  sentinel: { imports: [...L0, "host", "bpf", "sdk"] },
};

const APPS = new Set(
  ["fluxvmd", "fluxctl", "console", "mcp", "fleet", "imp-operator", "imp-agent", "microvm", "kubectl-imp", "imp-sandbox"].concat([
    "imp-sandbox-gateway",
    "egress-proxy",
    "containerd-shim",
    "sentinel",
  ]),
);

/** Packages that must not touch the world, so that a simulation can run them on a clock of its own. */
export const PURE_PACKAGES: ReadonlySet<string> = new Set(["core", "contracts", "scheduler", "engine", "manager"]);

export const BACKEND_NAMES: readonly string[] = ["qemu", "cloud-hypervisor", "firecracker", "fluxvm", "simulated"];

/** The table's name of a package folder: `core` of `packages/core`. */
export function layerName(folder: string): string {
  return folder === "sdk/typescript" ? "sdk" : (folder.split("/")[1] ?? folder);
}

/** Whether `from` may import `to`: "yes", "types" (as types only) or "no". A package may import itself. */
export function decideImport(from: string, to: string): "yes" | "types" | "no" {
  const allowance = LAYERS[from];
  if (from === to) return "yes";
  if (allowance === undefined || APPS.has(to)) return "no";
  if (allowance.imports.includes(to) || (allowance.imports.includes(ANY_PACKAGE) && to !== "sdk")) return "yes";
  return allowance.types?.includes(to) === true ? "types" : "no";
}

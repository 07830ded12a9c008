/**
 * What a guest is told at boot, on its config disk, and the pure functions that work it out from a record.
 * `fluxvmd` encodes it with `@fluxvm/guest-protocol`.
 */
import type { ImageConfig, WorkloadSpec } from "@fluxvm/contracts";
import type { VmRecord } from "./vm-record.ts";

export interface GuestConfig {
  readonly vmId: string;
  readonly hostname: string;
  /** How the agent authenticates its host; absent when the VM has no agent channel. */
  readonly token?: string | undefined;
  /** Where the root file system is; absent when the VM has no disk. */
  readonly root?: { readonly serial: string; readonly fstype: "ext4"; readonly grow: boolean } | undefined;
  readonly init: "auto" | "agent" | "image";
  readonly network: {
    readonly interfaces: readonly GuestInterface[];
    readonly nameservers: readonly string[];
    readonly search: readonly string[];
  };
  readonly wallClockMs: number;
  /** Seeds the guest's generator. */
  readonly entropy: Uint8Array;
  /** What to run where the agent is init; absent means nothing. */
  readonly workload?: GuestWorkload | undefined;
}

export interface GuestInterface {
  readonly mac: string;
  /** With prefix length. */
  readonly address: string;
  readonly gateway: string;
}

export interface GuestWorkload {
  readonly argv: readonly string[];
  /** KEY=value */
  readonly env: readonly string[];
  readonly user: string;
  readonly cwd: string;
  readonly stopSignal: string;
}

/** The network behind user mode: QEMU's documented defaults for its user network back end. */
const USER_NETWORK = { address: "10.0.2.15/24", gateway: "10.0.2.2", nameserver: "10.0.2.3" } as const;

export function computeGuestConfig(record: VmRecord, now: { readonly wallMs: number; readonly entropy: Uint8Array }): GuestConfig {
  const { spec } = record;
  const mac = record.mac;
  return {
    vmId: record.id,
    hostname: spec.hostname,
    token: spec.agent ? record.token : undefined,
    root: spec.image === undefined ? undefined : { serial: "fluxvm-root", fstype: "ext4", grow: true },
    init: spec.init,
    network: {
      interfaces: mac === undefined ? [] : [{ mac, address: USER_NETWORK.address, gateway: USER_NETWORK.gateway }],
      nameservers: mac === undefined ? [] : [USER_NETWORK.nameserver],
      search: [],
    },
    wallClockMs: now.wallMs,
    entropy: now.entropy,
    workload: spec.workload,
  };
}

/** The image's configuration with the request's changes. `undefined` when there is nothing to run. */
export function computeWorkload(image: ImageConfig | undefined, change: WorkloadSpec | undefined): GuestWorkload | undefined {
  if (change?.enabled === false) return undefined;
  const entrypoint = change?.entrypoint ?? image?.entrypoint ?? [];
  // As container engines do it: a new entrypoint drops the image's arguments.
  const command = change?.command ?? (change?.entrypoint === undefined ? (image?.cmd ?? []) : []);
  const argv = [...entrypoint, ...command];
  if (argv.length === 0) return undefined;
  return {
    argv,
    env: mergeEnvironment(image?.env ?? [], change?.env ?? {}),
    user: change?.user ?? image?.user ?? "",
    cwd: (change?.working_dir ?? image?.working_dir) || "/",
    stopSignal: image?.stop_signal || "SIGTERM",
  };
}

function mergeEnvironment(base: readonly string[], changes: Readonly<Record<string, string>>): readonly string[] {
  const kept = base.filter((line) => !Object.hasOwn(changes, line.split("=", 1)[0] ?? ""));
  return [...kept, ...Object.entries(changes).map(([key, value]) => `${key}=${value}`)];
}

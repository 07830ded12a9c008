/** One VM as a backend sees it: resolved, absolute, without choices left but the machine model. */

export interface LaunchPlan {
  readonly vmId: string;
  readonly instanceId: string;
  readonly name: string;
  /** The VM's own directory, absolute, writable for `gid`; sockets, logs and disks live in it. */
  readonly workspace: string;
  readonly uid: number;
  readonly gid: number;
  readonly accel: "auto" | "kvm" | "tcg";
  readonly vcpus: number;
  readonly memoryMib: number;
  readonly boot: BootPlan;
  readonly disks: readonly DiskPlan[];
  readonly network: NetworkPlan;
  /** Whether to offer a channel for the guest agent. */
  readonly agent: boolean;
  readonly console: { readonly logPath: string; readonly maxBytes: number };
  readonly limits: ResourceLimits;
}

export type BootPlan =
  | {
      readonly kind: "kernel";
      readonly kernelPath: string;
      readonly initrdPath?: string | undefined;
      /** Without console and root arguments the backend adds. */ readonly cmdline: string;
    }
  | {
      readonly kind: "firmware";
      readonly firmware: "uefi" | "bios";
      /** Writable copy of the variables, for uefi. */ readonly varsPath?: string | undefined;
    };

export interface DiskPlan {
  /** Serial number the guest sees: `fluxvm-root`, `fluxvm-config`, `fluxvm-seed`. */
  readonly serial: string;
  readonly path: string;
  readonly format: "raw" | "qcow2";
  readonly readonly: boolean;
  /** Files below `path` in its backing chain, all opened read-only. */
  readonly backing: readonly { readonly path: string; readonly format: "raw" | "qcow2" }[];
  /** Whether firmware starts from it. */
  readonly bootable: boolean;
}

export type NetworkPlan =
  | { readonly mode: "none" }
  | {
      readonly mode: "user";
      readonly mac: string;
      readonly forwards: readonly {
        readonly protocol: "tcp" | "udp";
        readonly hostAddress: string;
        readonly hostPort: number;
        readonly guestPort: number;
      }[];
    };

export interface ResourceLimits {
  /** Of the whole VMM process with its overhead; undefined means none. */
  readonly memoryMaxBytes?: number | undefined;
  readonly cpuQuotaPercent?: number | undefined;
  readonly pidsMax?: number | undefined;
}

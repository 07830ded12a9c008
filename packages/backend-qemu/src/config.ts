/** What the daemon's configuration decides about QEMU, with every default filled in. */
import { invalidField } from "@fluxvm/core";

export interface QemuConfig {
  /** Absolute path, or a name looked up in `searchPath`. */
  readonly binary: string;
  readonly searchPath: readonly string[];
  /** UEFI firmware's code, for disks that start by themselves. */
  readonly ovmfCode: string;
  /** CPU model under KVM. */
  readonly kvmCpu: string;
  /** Frequency of the host's time-stamp counter, `host` to ask the kernel, `unknown` to do without. */
  readonly tscKhz: number | "host" | "unknown";
  /** Deadline of one control command. */
  readonly commandTimeoutMs: number;
  /** From the start of the process until its control socket answers. */
  readonly launchTimeoutMs: number;
  /** How long a process may take to go after it was told to. */
  readonly quitTimeoutMs: number;
  /** Between attempts to go on with a guest whose disk the host could not write, usually for want of space. */
  readonly diskRetryMs: number;
  /** Host folders QEMU needs read-only: its libraries and firmware. Those that do not exist are left out. */
  readonly systemFolders: readonly string[];
}

export type QemuConfigInput = Partial<QemuConfig>;

const DEFAULTS: QemuConfig = {
  binary: "qemu-system-x86_64",
  searchPath: ["/usr/local/bin", "/usr/bin", "/bin"],
  ovmfCode: "/usr/share/OVMF/OVMF_CODE_4M.fd",
  kvmCpu: "host",
  tscKhz: "host",
  commandTimeoutMs: 10_000,
  launchTimeoutMs: 15_000,
  quitTimeoutMs: 5000,
  diskRetryMs: 5000,
  systemFolders: ["/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/qemu", "/usr/share/seabios", "/usr/share/OVMF"],
};

/** @throws PlatformError `REQUEST_INVALID` naming the key. */
export function parseQemuConfig(input: QemuConfigInput = {}): QemuConfig {
  const config: QemuConfig = { ...DEFAULTS, ...withoutUndefined(input) };
  if (config.binary === "") throw invalidField("binary", "must not be empty");
  for (const key of ["commandTimeoutMs", "launchTimeoutMs", "quitTimeoutMs", "diskRetryMs"] as const) {
    if (!Number.isSafeInteger(config[key]) || config[key] <= 0) throw invalidField(key, "must be a positive number of milliseconds");
  }
  for (const folder of [...config.searchPath, ...config.systemFolders]) {
    if (!folder.startsWith("/")) throw invalidField("systemFolders", `${JSON.stringify(folder)} is not an absolute path`);
  }
  return Object.freeze(config);
}

function withoutUndefined(input: QemuConfigInput): QemuConfigInput {
  return Object.fromEntries(Object.entries(input).filter(([, value]) => value !== undefined));
}

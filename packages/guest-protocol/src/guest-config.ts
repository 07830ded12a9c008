/**
 * What the agent is told at boot, and its form on the config disk: `FLUXCFG1`, length u32, CRC-32 u32 of the JSON, the
 * JSON, zeros up to a multiple of 512. `native/guest-agent/src/config.rs` reads it; both are checked against
 * `fixtures/guest-config.json`.
 */
import { crc32 } from "node:zlib";

export interface GuestConfig {
  readonly version: 1;
  readonly vmId: string;
  /** 64 hex digits. Without one the agent serves nobody. */
  readonly token?: string | undefined;
  readonly hostname: string;
  readonly agent:
    | { readonly transport: "virtio-serial"; readonly portName: string }
    | { readonly transport: "vsock"; readonly port: number };
  /** The disk with the root file system, by its virtio serial. Without one the agent stays in the initrd. */
  readonly root?: { readonly serial: string; readonly fstype: string; readonly readonly: boolean; readonly grow: boolean } | undefined;
  /** `auto`: the image's own init when it has one. */
  readonly init: "auto" | "agent" | "image";
  readonly network?: GuestNetwork | undefined;
  readonly wallClockMs?: number | undefined;
  /** Hex, mixed into the guest's generator. */
  readonly entropy?: string | undefined;
  readonly workload?: GuestWorkload | undefined;
  /** How a machine ends: `reboot` where it has no power switch, such as microvm without ACPI. */
  readonly powerOff?: "poweroff" | "reboot" | undefined;
}

export interface GuestNetwork {
  readonly interfaces: readonly {
    readonly mac?: string | undefined;
    readonly name?: string | undefined;
    /** With prefix length. */
    readonly address?: string | undefined;
    readonly gateway?: string | undefined;
    readonly address6?: string | undefined;
    readonly gateway6?: string | undefined;
    readonly mtu?: number | undefined;
  }[];
  readonly nameservers: readonly string[];
  readonly search: readonly string[];
}

export interface GuestWorkload {
  readonly argv: readonly string[];
  readonly env: readonly (readonly [string, string])[];
  readonly user: string;
  readonly cwd: string;
  readonly stopSignal: string;
  readonly tty: boolean;
}

export const GUEST_CONFIG_DISK_SERIAL = "fluxvm-config";
export const GUEST_ROOT_DISK_SERIAL = "fluxvm-root";
export const GUEST_AGENT_PORT_NAME = "fluxvm.agent";
export const GUEST_AGENT_VSOCK_PORT = 17777;

const SECTOR_BYTES = 512;
const HEADER_BYTES = 16;
const MAX_JSON_BYTES = 1024 * 1024;

export function encodeGuestConfigDisk(config: GuestConfig): Uint8Array {
  const json = Buffer.from(JSON.stringify(config));
  if (json.length > MAX_JSON_BYTES) throw new RangeError(`the guest's configuration is ${json.length} bytes, at most ${MAX_JSON_BYTES}`);
  const disk = Buffer.alloc(Math.ceil((HEADER_BYTES + json.length) / SECTOR_BYTES) * SECTOR_BYTES);
  disk.write("FLUXCFG1", 0, "latin1");
  disk.writeUInt32LE(json.length, 8);
  disk.writeUInt32LE(crc32(json), 12);
  json.copy(disk, HEADER_BYTES);
  return disk;
}

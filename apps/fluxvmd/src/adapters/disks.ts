/** The disk files of a VM, written natively and given to the VM's user. Each appears whole or not at all. */
import { constants } from "node:fs";
import { copyFile, lstat, open, rename, rm, writeFile } from "node:fs/promises";
import { PlatformError } from "@fluxvm/core";
import type { Disks, GuestConfig, Owner, SeedSpec } from "@fluxvm/engine";
import { encodeGuestConfigDisk, GUEST_AGENT_PORT_NAME, GUEST_CONFIG_DISK_SERIAL, GUEST_ROOT_DISK_SERIAL } from "@fluxvm/guest-protocol";
import { toFileError } from "@fluxvm/host";
import { writeNoCloudSeed, type ImageService } from "@fluxvm/image";

const SEED_SERIAL = "fluxvm-seed";

export interface DisksOptions {
  readonly images: Pick<ImageService, "resolve" | "createOverlay">;
  /** Template of UEFI's variables. */
  readonly ovmfVars: string;
}

export function createDisks(options: DisksOptions): Disks {
  const { images } = options;
  return {
    async createRoot({ imageId, path, sizeBytes, owner }, { signal }) {
      const image = images.resolve(imageId);
      await rm(path, { force: true });
      await images.createOverlay({ image, path, sizeBytes, signal });
      await give(path, owner);
      const backing = [{ path: image.diskPath, format: image.format }];
      return { serial: GUEST_ROOT_DISK_SERIAL, path, format: "qcow2", readonly: false, backing, bootable: false };
    },
    async writeConfigDisk({ path, config, owner }) {
      await writeAnew(path, encodeGuestConfigDisk(toAgentConfig(config)));
      await give(path, owner);
      return { serial: GUEST_CONFIG_DISK_SERIAL, path, format: "raw", readonly: true, backing: [], bootable: false };
    },
    async writeSeed({ path, seed, owner }) {
      await writeNoCloudSeed(path, { ...toSeedInput(seed), mode: 0o600 });
      await give(path, owner);
      return { serial: SEED_SERIAL, path, format: "raw", readonly: true, backing: [], bootable: false };
    },
    async ensureFirmwareVars({ path, owner }) {
      await ensureCopy(options.ovmfVars, path);
      await give(path, owner);
    },
  };
}

function toAgentConfig(config: GuestConfig): Parameters<typeof encodeGuestConfigDisk>[0] {
  const { workload, network, root } = config;
  return {
    version: 1,
    vmId: config.vmId,
    token: config.token,
    hostname: config.hostname,
    agent: { transport: "virtio-serial", portName: GUEST_AGENT_PORT_NAME },
    root: root === undefined ? undefined : { ...root, readonly: false },
    init: config.init,
    network,
    wallClockMs: config.wallClockMs,
    entropy: Buffer.from(config.entropy).toString("hex"),
    workload: workload === undefined ? undefined : { ...workload, env: workload.env.map(splitVariable), tty: false },
  };
}

function splitVariable(line: string): readonly [string, string] {
  const equals = line.indexOf("=");
  return equals === -1 ? [line, ""] : [line.slice(0, equals), line.slice(equals + 1)];
}

function toSeedInput(seed: SeedSpec): Parameters<typeof writeNoCloudSeed>[1] {
  const { instanceId, hostname, cloudInit, mac } = seed;
  return { instanceId, hostname, cloudInit, network: mac === undefined ? { kind: "none" } : { kind: "dhcp", mac } };
}

/**
 * Not synced: it is written for each start, so none that a crash of the host left is ever read. `wx` follows no link that
 * an earlier run of the VM may have put in its directory.
 */
async function writeAnew(path: string, content: Uint8Array): Promise<void> {
  const partial = `${path}.partial`;
  try {
    await rm(partial, { force: true });
    await writeFile(partial, content, { mode: 0o600, flag: "wx" });
    await rename(partial, path);
  } catch (error) {
    await rm(partial, { force: true });
    throw toFileError(error, "write the guest's configuration disk");
  }
}

/** Keeps a file that is there; anything else in its place, which only a broken-out VMM can have put there, goes. */
async function ensureCopy(source: string, target: string): Promise<void> {
  const present = await lstat(target).catch(() => undefined);
  if (present?.isFile() === true) return;
  if (present !== undefined) await rm(target, { recursive: true });
  const partial = `${target}.partial`;
  try {
    await rm(partial, { force: true });
    await copyFile(source, partial, constants.COPYFILE_EXCL);
    await rename(partial, target);
  } catch (error) {
    await rm(partial, { force: true });
    const { code } = error as NodeJS.ErrnoException; // node:fs rejects with these
    if (code === "ENOENT") {
      throw new PlatformError("HOST_TOOL_MISSING", "Cannot start UEFI: its variables' template is not there; install the package ovmf", {
        cause: error,
      });
    }
    throw toFileError(error, "copy UEFI's variables");
  }
}

/** By a handle, so that a link in the file's place gives nothing else away. */
async function give(path: string, owner: Owner): Promise<void> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    await file.chmod(0o600);
    if (process.getuid?.() === 0) await file.chown(owner.uid, owner.gid);
  } finally {
    await file.close();
  }
}

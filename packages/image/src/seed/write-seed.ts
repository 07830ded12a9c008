/** Puts a NoCloud seed disk in its place: whole or not at all, and on the disk when the call returns. */
import { open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { fsyncDir } from "@fluxvm/host";
import { translateHostError } from "../host-error.ts";
import { buildIso9660 } from "./iso9660.ts";
import { buildNoCloudFiles, type NoCloudInput } from "./no-cloud.ts";

export interface WriteSeedOptions extends NoCloudInput {
  /** Default 0600: user data may hold secrets. */
  readonly mode?: number;
}

/** Volume label by which cloud-init finds the disk. */
export const SEED_VOLUME_ID = "cidata";

/** The bytes of a seed disk. @throws PlatformError `REQUEST_INVALID` */
export function buildNoCloudSeed(input: NoCloudInput): Uint8Array {
  const files = Object.entries(buildNoCloudFiles(input)).map(([name, text]) => ({ name, data: Buffer.from(String(text), "utf8") }));
  return buildIso9660({ volumeId: SEED_VOLUME_ID, files });
}

/** Writes it at `path`, replacing what is there. @returns its size @throws PlatformError `HOST_OUT_OF_SPACE`, and as above */
export async function writeNoCloudSeed(path: string, options: WriteSeedOptions): Promise<{ readonly bytes: number }> {
  const bytes = buildNoCloudSeed(options);
  const temporary = `${path}.new`;
  try {
    await rm(temporary, { force: true }); // a leftover may be a link to elsewhere
    const file = await open(temporary, "wx", options.mode ?? 0o600);
    try {
      await file.writeFile(bytes);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw translateHostError(error);
  }
  await fsyncDir(dirname(path));
  return { bytes: bytes.byteLength };
}

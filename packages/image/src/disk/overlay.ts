/** A VM's own disk: an empty qcow2 file over a shared, read-only base. Written natively in a few milliseconds. */
import { open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { formatBytes, invalidField, PlatformError } from "@fluxvm/core";
import { fsyncDir } from "@fluxvm/host";
import { translateHostError } from "../host-error.ts";
import { encodeOverlay } from "./qcow2.ts";

export interface OverlayRequest {
  readonly image: { readonly name: string; readonly format: "raw" | "qcow2"; readonly diskPath: string; readonly virtualSizeBytes: number };
  /** Where the overlay goes; must not exist. */
  readonly path: string;
  /** Size the guest sees, at least the image's. */
  readonly sizeBytes: number;
  /** The base as the VMM will see it; default: `image.diskPath`. */
  readonly backingPath?: string | undefined;
  readonly signal: AbortSignal;
}

/** @throws PlatformError `DISK_SHRINK_REFUSED`, `HOST_OUT_OF_SPACE` */
export async function createOverlay(request: OverlayRequest): Promise<void> {
  const { image, path, sizeBytes, signal } = request;
  signal.throwIfAborted();
  if (!Number.isSafeInteger(sizeBytes) || sizeBytes <= 0 || sizeBytes > 2 ** 46)
    throw invalidField("disk size", `${sizeBytes} bytes is out of range`);
  if (sizeBytes < image.virtualSizeBytes) {
    const sizes = `${formatBytes(sizeBytes)} is less than its ${formatBytes(image.virtualSizeBytes)}`;
    throw new PlatformError("DISK_SHRINK_REFUSED", `Cannot shrink image ${JSON.stringify(image.name)}: ${sizes}`);
  }
  const layout = encodeOverlay({
    backingPath: request.backingPath ?? image.diskPath,
    backingFormat: image.format,
    virtualBytes: Math.ceil(sizeBytes / 512) * 512,
  });
  const partial = `${path}.partial`;
  try {
    const file = await open(partial, "wx", 0o600);
    try {
      await file.writeFile(layout.head);
      await file.truncate(layout.fileBytes);
      await file.sync();
    } finally {
      await file.close();
    }
    signal.throwIfAborted();
    await rename(partial, path);
    await fsyncDir(dirname(path));
  } catch (error) {
    await rm(partial, { force: true });
    throw translateHostError(error);
  }
}

/** Errors of the host's system calls, as the catalogue has them. */
import { isPlatformError, PlatformError, toPlatformError } from "@fluxvm/core";

const OUT_OF_SPACE = new Set(["ENOSPC", "EDQUOT"]);

/** `HOST_OUT_OF_SPACE` for a full disk, `REQUEST_CANCELLED` for an abort, else what `toPlatformError` makes of it. */
export function translateHostError(error: unknown): PlatformError {
  if (isPlatformError(error)) return error;
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  if (OUT_OF_SPACE.has(code)) return outOfSpace(error);
  return toPlatformError(error);
}

export function outOfSpace(cause: unknown): PlatformError {
  return new PlatformError("HOST_OUT_OF_SPACE", "The disk of the state directory is full; nothing half-made was kept", { cause });
}

/** Whether the last lines of a program say that a disk was full. Programs have no better way to tell. */
export function saysOutOfSpace(output: string): boolean {
  return /no space left on device|disk quota exceeded|could not allocate (block|inode) in ext2/i.test(output);
}

/** Tells whether a local source is still what it was: part of what makes two requests equal. */
import { stat } from "node:fs/promises";
import { PlatformError } from "@fluxvm/core";

/** @throws PlatformError `IMAGE_SOURCE_UNREACHABLE` when there is no such file. */
export async function stampFile(path: string, name = path): Promise<string> {
  const found = await stat(path).catch((error: unknown) => {
    throw new PlatformError(
      "IMAGE_SOURCE_UNREACHABLE",
      `Cannot read ${JSON.stringify(name)}: there is no such file, or it is not readable`,
      { cause: error },
    );
  });
  return `${found.dev}:${found.ino}:${found.size}:${found.mtimeMs}`;
}

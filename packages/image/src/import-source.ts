/** Chooses how a source becomes a disk. */
import { assertNever, type Clock } from "@fluxvm/core";
import type { ImageContent } from "./content.ts";
import type { ContentStore } from "./library/content-store.ts";
import type { ImportContext, ImportResult } from "./library/library.ts";
import type { ImageLimits, ImageTools } from "./ports.ts";
import { importDebian } from "./debian/import-debian.ts";
import { importDisk } from "./disk/import-disk.ts";
import { importOci } from "./oci/import-oci.ts";
import type { ImageSource } from "./source.ts";

export interface ImageImport {
  readonly source: ImageSource;
  readonly sha256: string | undefined;
  /** Least size of a file system that is made. */
  readonly minBytes: number;
  readonly tools: ImageTools;
  readonly limits: ImageLimits;
  readonly clock: Clock;
  readonly files: ContentStore;
  readonly context: ImportContext;
}

export async function importSource(request: ImageImport): Promise<ImportResult<ImageContent>> {
  const { source } = request;
  switch (source.kind) {
    case "oci":
    case "oci-archive":
    case "docker":
      return await importOci(request, source);
    case "debian":
      return await importDebian(request, source);
    case "file":
    case "url":
      return await importDisk(request, source);
    default:
      return assertNever(source);
  }
}

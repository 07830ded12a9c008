/** Layers to a finished, read-only disk file and its description. */
import { chmod, mkdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { DISK_RAW, type ImageContent } from "../content.ts";
import type { ImageImport } from "../import-source.ts";
import { buildRootfs } from "./build-rootfs.ts";
import type { RootfsLayer } from "./layer.ts";

export interface FinishRequest {
  readonly request: ImageImport;
  readonly layers: readonly RootfsLayer[];
  readonly digest: string;
  readonly epoch: number;
  readonly disk: string;
  readonly onBytes?: (bytes: number) => void;
}

export async function finishRootfs({ request, layers, digest, epoch, disk, onBytes }: FinishRequest): Promise<ImageContent> {
  const { context, tools, limits, minBytes } = request;
  const work = join(context.directory, "unpack");
  await mkdir(work);
  const built = await buildRootfs({
    layers,
    work,
    disk,
    digest,
    epoch,
    minBytes,
    tools,
    limits,
    signal: context.signal,
    ...(onBytes === undefined ? {} : { onBytes }),
  });
  if (!built.ownersKept) context.logger.warn("not root: every file of the image belongs to its root user");
  context.report({ phase: "finishing", done_bytes: built.diskBytes, total_bytes: built.diskBytes });
  await chmod(disk, 0o444);
  await rm(work, { recursive: true, force: true });
  const { blocks } = await stat(disk);
  return { digest, kind: "rootfs", format: "raw", file: DISK_RAW, virtualSizeBytes: built.diskBytes, storedBytes: blocks * 512 };
}

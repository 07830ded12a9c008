/** An OCI image, from wherever it lies, to a root file system. */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { DISK_RAW, type ImageContent } from "../content.ts";
import { digestOfInputs } from "../digest.ts";
import type { ImageImport } from "../import-source.ts";
import type { ImportResult } from "../library/library.ts";
import { finishRootfs } from "../rootfs/finish-rootfs.ts";
import { readMke2fsVersion } from "../rootfs/mke2fs.ts";
import type { ImageSource } from "../source.ts";
import { blobOf, openLayoutArchive, openLayoutDirectory, type LayoutFiles } from "./blob-store.ts";
import { ociLayer } from "./oci-layer.ts";
import { pullImage } from "./pull.ts";
import { resolveManifest, type ResolvedImage } from "./resolve-manifest.ts";

export type OciSource = Extract<ImageSource, { readonly kind: "oci" | "oci-archive" | "docker" }>;

/** For what the image gives no time for: 2000-01-01. */
const DEFAULT_EPOCH = 946_684_800;

export async function importOci(request: ImageImport, source: OciSource): Promise<ImportResult<ImageContent>> {
  const { tools, files, minBytes, context } = request;
  const layout = await openSource(request, source);
  try {
    const tag = source.kind === "docker" ? undefined : source.tag;
    const image = await resolveManifest(layout, { tag, architecture: ociArchitecture(), signal: context.signal });
    const digest = digestOfInputs({
      from: "oci",
      manifest: image.digest,
      minBytes,
      mke2fs: await readMke2fsVersion(tools.mke2fs, context.signal),
    });
    const held = await files.ensure<ImageContent>(
      digest,
      context.signal,
      async (directory) => await unpackImage({ request, layout, image, digest, directory }),
    );
    return { content: held.meta, release: held.release };
  } finally {
    await layout.close();
  }
}

async function openSource(request: ImageImport, source: OciSource): Promise<LayoutFiles> {
  if (source.kind === "oci") return await openLayoutDirectory(source.path);
  if (source.kind === "oci-archive") return await openLayoutArchive(source.path);
  const { context, tools, limits, clock } = request;
  const work = join(context.directory, "pull");
  await mkdir(work);
  const onBytes = (done: number): void => context.report({ phase: "fetching", done_bytes: done });
  return await openLayoutDirectory(
    await pullImage({
      reference: source.reference,
      work,
      tools,
      timeoutMs: limits.importTimeoutMs,
      clock,
      signal: context.signal,
      onBytes,
    }),
  );
}

interface UnpackRequest {
  readonly request: ImageImport;
  readonly layout: LayoutFiles;
  readonly image: ResolvedImage;
  readonly digest: string;
  readonly directory: string;
}

async function unpackImage({ request, layout, image, digest, directory }: UnpackRequest): Promise<ImageContent> {
  const { context } = request;
  const total = image.manifest.layers.reduce((sum, layer) => sum + layer.size, 0);
  let done = 0;
  const onRead = (bytes: number): void => {
    done += bytes;
    context.report({ phase: "unpacking", done_bytes: Math.min(done, total), total_bytes: total });
  };
  const layers = image.manifest.layers.map((descriptor, index) =>
    ociLayer({ blob: blobOf(layout, descriptor), digest: descriptor.digest, diffId: image.config.diffIds[index] ?? "", onRead }),
  );
  const epoch = image.config.created ?? DEFAULT_EPOCH;
  const content = await finishRootfs({ request, layers, digest, epoch, disk: join(directory, DISK_RAW) });
  return { ...content, config: image.config.config };
}

function ociArchitecture(): string {
  return process.arch === "x64" ? "amd64" : process.arch;
}

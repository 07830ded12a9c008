/** Writes OCI layouts for tests, right ones and ones that lie. */
import { createHash } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { writeTar, type TarItem } from "./tar-writer.ts";

export interface TestLayer {
  readonly items?: readonly TarItem[];
  /** The tar itself, in place of `items`. */
  readonly tar?: Buffer;
  readonly compression?: "gzip" | "zstd" | "none";
}

export interface TestImage {
  readonly layers: readonly TestLayer[];
  readonly config?: Readonly<Record<string, unknown>>;
  readonly tag?: string;
  readonly architecture?: string;
  readonly created?: string;
}

export interface WrittenImage {
  readonly manifestDigest: string;
  readonly configDigest: string;
  readonly layerDigests: readonly string[];
}

export interface LayoutWriter {
  readonly directory: string;
  /** Stores bytes and returns their descriptor. */
  blob(data: Buffer, mediaType: string): Promise<TestDescriptor>;
  image(image: TestImage): Promise<WrittenImage>;
  index(manifests: readonly Readonly<Record<string, unknown>>[]): Promise<void>;
}

export interface TestDescriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}

const MEDIA = "application/vnd.oci.image";

export async function createLayout(directory: string): Promise<LayoutWriter> {
  await mkdir(join(directory, "blobs", "sha256"), { recursive: true });
  await writeFile(join(directory, "oci-layout"), '{"imageLayoutVersion":"1.0.0"}');
  const entries: Readonly<Record<string, unknown>>[] = [];
  const writer: LayoutWriter = {
    directory,
    blob: async (data, mediaType) => await writeBlob(directory, data, mediaType),
    index: async (manifests) => await writeFile(join(directory, "index.json"), JSON.stringify({ schemaVersion: 2, manifests })),
    image: async (image) => {
      const written = await writeImage(writer, image);
      const annotations = image.tag === undefined ? {} : { annotations: { "org.opencontainers.image.ref.name": image.tag } };
      entries.push({ ...written.manifest, ...annotations });
      await writer.index(entries);
      return { manifestDigest: written.manifest.digest, configDigest: written.configDigest, layerDigests: written.layerDigests };
    },
  };
  return writer;
}

async function writeImage(
  writer: LayoutWriter,
  image: TestImage,
): Promise<{ readonly manifest: TestDescriptor; readonly configDigest: string; readonly layerDigests: string[] }> {
  const tars = image.layers.map((layer) => layer.tar ?? writeTar(layer.items ?? []));
  const layers: TestDescriptor[] = [];
  for (const [index, tar] of tars.entries()) {
    const compression = image.layers[index]?.compression ?? "gzip";
    const data = compression === "gzip" ? gzipSync(tar) : compression === "zstd" ? zstdCompressSync(tar) : tar;
    layers.push(await writer.blob(data, `${MEDIA}.layer.v1.tar${compression === "none" ? "" : `+${compression}`}`));
  }
  const config = {
    architecture: image.architecture ?? (process.arch === "x64" ? "amd64" : process.arch),
    os: "linux",
    created: image.created ?? "2020-01-02T03:04:05Z",
    config: image.config ?? {},
    rootfs: { type: "layers", diff_ids: tars.map(digestOf) },
  };
  const configDescriptor = await writer.blob(Buffer.from(JSON.stringify(config)), `${MEDIA}.config.v1+json`);
  const manifest = { schemaVersion: 2, mediaType: `${MEDIA}.manifest.v1+json`, config: configDescriptor, layers };
  const descriptor = await writer.blob(Buffer.from(JSON.stringify(manifest)), `${MEDIA}.manifest.v1+json`);
  return { manifest: descriptor, configDigest: configDescriptor.digest, layerDigests: layers.map((layer) => layer.digest) };
}

async function writeBlob(directory: string, data: Buffer, mediaType: string): Promise<TestDescriptor> {
  const digest = digestOf(data);
  await writeFile(blobPath(directory, digest), data);
  return { mediaType, digest, size: data.length };
}

export function blobPath(directory: string, digest: string): string {
  return join(directory, "blobs", digest.replace(":", "/"));
}

export function digestOf(data: Buffer): string {
  return `sha256:${createHash("sha256").update(data).digest("hex")}`;
}

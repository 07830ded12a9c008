/** From a layout and perhaps a tag to the one manifest for this machine. */
import { PlatformError } from "@fluxvm/core";
import { blobOf, readText, type LayoutFiles } from "./blob-store.ts";
import { parseConfig, parseDocument, type ConfigDocument, type Descriptor, type Manifest } from "./json.ts";

export interface ResolvedImage {
  readonly digest: string;
  readonly manifest: Manifest;
  readonly config: ConfigDocument;
}

export interface ResolveOptions {
  readonly tag: string | undefined;
  /** As OCI calls it, for example `amd64`. */
  readonly architecture: string;
  readonly signal: AbortSignal;
}

const MAX_DEPTH = 4;

export async function resolveManifest(files: LayoutFiles, options: ResolveOptions): Promise<ResolvedImage> {
  const { signal } = options;
  const index = parseDocument(await readIndex(files, signal), "index.json");
  if (index.kind !== "index") throw new PlatformError("IMAGE_MALFORMED", "Cannot read index.json of the image: it is no index");
  const start = chooseByTag(index.manifests, options);
  return await follow(files, start, options, 0);
}

async function readIndex(files: LayoutFiles, signal: AbortSignal): Promise<string> {
  const file = await files.open("index.json");
  try {
    return await readText(file, "index.json", signal);
  } finally {
    await file.close();
  }
}

async function follow(files: LayoutFiles, descriptor: Descriptor, options: ResolveOptions, depth: number): Promise<ResolvedImage> {
  const { signal, architecture } = options;
  if (depth > MAX_DEPTH) throw new PlatformError("IMAGE_MALFORMED", "Cannot read the image: its indexes are nested too deeply");
  const document = parseDocument(await readText(blobOf(files, descriptor), descriptor.digest, signal), descriptor.digest);
  if (document.kind === "index") return await follow(files, choosePlatform(document.manifests, architecture), options, depth + 1);
  const { manifest } = document;
  const config = parseConfig(await readText(blobOf(files, manifest.config), manifest.config.digest, signal), manifest.config.digest);
  if (config.diffIds.length !== manifest.layers.length) {
    throw new PlatformError(
      "IMAGE_MALFORMED",
      `Cannot read ${manifest.config.digest} of the image: ${config.diffIds.length} diff_ids for ${manifest.layers.length} layers`,
    );
  }
  if (config.architecture !== "" && config.architecture !== architecture)
    throw wrongPlatform(`${config.os}/${config.architecture}`, architecture);
  return { digest: descriptor.digest, manifest, config };
}

function chooseByTag(manifests: readonly Descriptor[], options: ResolveOptions): Descriptor {
  const { tag, architecture } = options;
  const named = tag === undefined ? manifests : manifests.filter((m) => m.refName === tag);
  if (named.length === 0) {
    const known = manifests.flatMap((m) => (m.refName === undefined ? [] : [m.refName])).slice(0, 10);
    const hint = known.length === 0 ? "it names none" : `it has ${known.join(", ")}`;
    throw new PlatformError(
      "IMAGE_SOURCE_INVALID",
      tag === undefined ? "The OCI layout is empty" : `The OCI layout has no tag ${JSON.stringify(tag)}; ${hint}`,
    );
  }
  const [only] = named;
  if (only !== undefined && named.length === 1) return only;
  const tags = new Set(named.map((m) => m.refName));
  if (tag === undefined && tags.size > 1) {
    const latest = named.filter((m) => m.refName === "latest");
    if (latest[0] !== undefined && latest.length === 1) return latest[0];
    throw new PlatformError(
      "IMAGE_SOURCE_INVALID",
      `The OCI layout has several images: add one of the tags ${[...tags].slice(0, 10).join(", ")}`,
    );
  }
  return choosePlatform(named, architecture);
}

function choosePlatform(manifests: readonly Descriptor[], architecture: string): Descriptor {
  const fitting = manifests.find((m) => m.platform?.os === "linux" && m.platform.architecture === architecture);
  const [only] = manifests;
  const chosen = fitting ?? (manifests.length === 1 && only?.platform === undefined ? only : undefined);
  if (chosen !== undefined) return chosen;
  const known = manifests.map((m) => `${m.platform?.os ?? "?"}/${m.platform?.architecture ?? "?"}`).slice(0, 10);
  throw wrongPlatform(known.join(", "), architecture);
}

function wrongPlatform(found: string, wanted: string): PlatformError {
  return new PlatformError("IMAGE_SOURCE_INVALID", `The image is for ${found}, this host is linux/${wanted}`);
}

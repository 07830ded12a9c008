/** The documents of an OCI layout, parsed as what they are: somebody else's input (OCI image specification 1.1). */
import type { ImageConfig } from "@fluxvm/contracts";
import { PlatformError } from "@fluxvm/core";
import { isDigest } from "../digest.ts";

export interface Descriptor {
  readonly digest: string;
  readonly size: number;
  readonly mediaType: string;
  readonly refName: string | undefined;
  readonly platform: { readonly os: string; readonly architecture: string } | undefined;
}

export type Document =
  | { readonly kind: "index"; readonly manifests: readonly Descriptor[] }
  | { readonly kind: "manifest"; readonly manifest: Manifest };

export interface Manifest {
  readonly config: Descriptor;
  readonly layers: readonly Descriptor[];
}

export interface ConfigDocument {
  readonly os: string;
  readonly architecture: string;
  readonly diffIds: readonly string[];
  /** Seconds since 1970, if it says. */
  readonly created: number | undefined;
  readonly config: ImageConfig;
}

type Json = Readonly<Record<string, unknown>>;

const MAX_LAYERS = 1024;
const MAX_MANIFESTS = 1024;
const REF_NAME = "org.opencontainers.image.ref.name";

export function parseDocument(text: string, name: string): Document {
  const json = parseObject(text, name);
  if (Array.isArray(json.manifests)) {
    if (json.manifests.length > MAX_MANIFESTS) throw malformed(name, `more than ${MAX_MANIFESTS} manifests`);
    return { kind: "index", manifests: json.manifests.map((value) => parseDescriptor(value, name)) };
  }
  if (!Array.isArray(json.layers)) throw malformed(name, "it is neither an index nor an image manifest");
  if (json.layers.length > MAX_LAYERS) throw malformed(name, `more than ${MAX_LAYERS} layers`);
  return {
    kind: "manifest",
    manifest: { config: parseDescriptor(json.config, name), layers: json.layers.map((value) => parseDescriptor(value, name)) },
  };
}

function parseDescriptor(value: unknown, name: string): Descriptor {
  const json = asObject(value) ?? {};
  const { digest, size, mediaType } = json;
  if (!isDigest(digest)) throw malformed(name, `a descriptor's digest is not sha256 (${JSON.stringify(digest ?? null).slice(0, 100)})`);
  if (typeof size !== "number" || !Number.isSafeInteger(size) || size < 0) throw malformed(name, `the size of ${digest} is no size`);
  const platform = asObject(json.platform);
  return {
    digest,
    size,
    mediaType: typeof mediaType === "string" ? mediaType : "",
    refName: stringOr(asObject(json.annotations)?.[REF_NAME], undefined),
    platform: platform === undefined ? undefined : { os: stringOr(platform.os, ""), architecture: stringOr(platform.architecture, "") },
  };
}

export function parseConfig(text: string, name: string): ConfigDocument {
  const json = parseObject(text, name);
  const inner = asObject(json.config) ?? {};
  const diffIds = asObject(json.rootfs)?.diff_ids;
  if (!Array.isArray(diffIds) || !diffIds.every(isDigest)) throw malformed(name, "rootfs.diff_ids is no list of digests");
  const created = typeof json.created === "string" ? Math.floor(Date.parse(json.created) / 1000) : Number.NaN;
  return {
    os: stringOr(json.os, ""),
    architecture: stringOr(json.architecture, ""),
    diffIds,
    created: Number.isSafeInteger(created) && created > 0 ? created : undefined,
    config: {
      entrypoint: strings(inner.Entrypoint, name, "Entrypoint"),
      cmd: strings(inner.Cmd, name, "Cmd"),
      env: strings(inner.Env, name, "Env"),
      user: stringOr(inner.User, ""),
      working_dir: stringOr(inner.WorkingDir, ""),
      stop_signal: stringOr(inner.StopSignal, ""),
      labels: labels(inner.Labels),
    },
  };
}

function strings(value: unknown, name: string, field: string): string[] {
  if (value === undefined || value === null) return [];
  if (Array.isArray(value) && value.every((item) => typeof item === "string" && !item.includes("\0"))) return value as string[]; // just looked at
  throw malformed(name, `config.${field} is no list of strings`);
}

function labels(value: unknown): Record<string, string> {
  const pairs = Object.entries(asObject(value) ?? {}).filter((pair): pair is [string, string] => typeof pair[1] === "string");
  return Object.fromEntries(pairs);
}

function stringOr<T>(value: unknown, fallback: T): string | T {
  return typeof value === "string" ? value : fallback;
}

function asObject(value: unknown): Json | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : undefined; // just looked at
}

function parseObject(text: string, name: string): Json {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw malformed(name, "it is no JSON", error);
  }
  const json = asObject(value);
  if (json === undefined) throw malformed(name, "it is no JSON object");
  return json;
}

function malformed(name: string, why: string, cause?: unknown): PlatformError {
  return new PlatformError("IMAGE_MALFORMED", `Cannot read ${name} of the image: ${why}`, { cause });
}

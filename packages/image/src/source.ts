/** What an image can be made from, as people write it. */
import { PlatformError } from "@fluxvm/core";

export type ImageSource =
  | { readonly kind: "oci"; readonly path: string; readonly tag: string | undefined }
  | { readonly kind: "oci-archive"; readonly path: string; readonly tag: string | undefined }
  | { readonly kind: "docker"; readonly reference: string }
  | { readonly kind: "debian"; readonly suite: string; readonly packages: readonly string[] }
  | { readonly kind: "file"; readonly path: string }
  | { readonly kind: "url"; readonly url: string };

const TAG = /^[A-Za-z0-9_][A-Za-z0-9._/@:-]{0,127}$/;
const SUITE = /^[a-z][a-z0-9.-]{0,63}$/;
/** Debian Policy 5.6.1. */
const PACKAGE = /^[a-z0-9][a-z0-9+.-]{1,127}$/;
const MAX_PACKAGES = 500;
/** `[host[:port]/]path[:tag][@digest]`, what the registries of the field accept; no option can hide in it. */
const DOCKER_REFERENCE =
  /^(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?\/|\[[0-9a-f:]+\](?::[0-9]{1,5})?\/)?[a-z0-9]+(?:(?:[._]|__|-+|\/)[a-z0-9]+)*(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?$/;

/** @throws PlatformError `IMAGE_SOURCE_INVALID` */
export function parseImageSource(text: string): ImageSource {
  if (text.includes("\0") || text.length > 4096) return refuse(text, "it holds a zero byte or is too long");
  if (text.startsWith("oci-archive:")) return parseLayout("oci-archive", text);
  if (text.startsWith("oci:")) return parseLayout("oci", text);
  if (text.startsWith("docker://")) return parseDocker(text);
  if (text.startsWith("debian:")) return parseDebian(text);
  if (/^https?:\/\//i.test(text)) return parseUrl(text);
  if (text.startsWith("/")) return { kind: "file", path: requireCleanPath(text, text) };
  return refuse(text, "expected oci:, oci-archive:, docker://, debian:, an absolute path or an http(s) URL");
}

/** The suite and packages of `debian:SUITE[+package,…]`. */
export function parseDebian(text: string): ImageSource & { readonly kind: "debian" } {
  const [suite = "", ...rest] = text.slice("debian:".length).split("+");
  if (!SUITE.test(suite)) return refuse(text, `${JSON.stringify(suite)} is no name of a suite`);
  const list = rest.join("+");
  const packages = rest.length === 0 ? [] : list.split(",");
  if (packages.length > MAX_PACKAGES) return refuse(text, `more than ${MAX_PACKAGES} packages`);
  for (const name of packages) if (!PACKAGE.test(name)) return refuse(text, `${JSON.stringify(name)} is no name of a package`);
  return { kind: "debian", suite, packages: [...new Set(packages)].toSorted() };
}

function parseLayout(kind: "oci" | "oci-archive", text: string): ImageSource {
  const rest = text.slice(kind.length + 1);
  const colon = rest.indexOf(":", rest.lastIndexOf("/") + 1);
  const path = requireCleanPath(colon === -1 ? rest : rest.slice(0, colon), text);
  const tag = colon === -1 ? undefined : rest.slice(colon + 1);
  if (tag !== undefined && !TAG.test(tag)) return refuse(text, `${JSON.stringify(tag)} is no tag`);
  return { kind, path, tag };
}

function parseDocker(text: string): ImageSource {
  const reference = text.slice("docker://".length);
  if (!DOCKER_REFERENCE.test(reference)) return refuse(text, `${JSON.stringify(reference)} is no image reference`);
  return { kind: "docker", reference };
}

function parseUrl(text: string): ImageSource {
  if (!URL.canParse(text)) return refuse(text, "it is no URL");
  const url = new URL(text);
  if (url.username !== "" || url.password !== "") return refuse("(URL with credentials)", "a URL must not carry credentials");
  return { kind: "url", url: url.href };
}

function requireCleanPath(path: string, source: string): string {
  if (!path.startsWith("/")) return refuse(source, "the path must be absolute");
  if (path.split("/").includes("..")) return refuse(source, "the path must not contain ..");
  return path.length > 1 ? path.replace(/\/+$/, "") : path;
}

function refuse(text: string, why: string): never {
  const message = `Invalid source ${JSON.stringify(text.slice(0, 200))}: ${why}`;
  throw new PlatformError("IMAGE_SOURCE_INVALID", message, { fields: [{ path: "source", message: why }] });
}

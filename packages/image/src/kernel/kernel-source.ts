/** What a kernel can be imported from. */
import type { CreateKernelRequest } from "@fluxvm/contracts";
import { invalidField, PlatformError } from "@fluxvm/core";
import { parseDebian } from "../source.ts";

export type KernelSource =
  | { readonly kind: "debian"; readonly suite: string }
  | { readonly kind: "file"; readonly path: string; readonly modules: string | undefined };

/** @throws PlatformError `IMAGE_SOURCE_INVALID`, `REQUEST_INVALID` */
export function parseKernelSource(request: CreateKernelRequest): KernelSource {
  const { source, modules, initrd } = request;
  if (source.startsWith("debian:")) {
    const { suite, packages } = parseDebian(source);
    if (packages.length > 0) throw refuse(source, "a kernel takes no packages");
    if (modules !== undefined) throw invalidField("modules", "a debian: kernel brings its own");
    return { kind: "debian", suite };
  }
  if (!source.startsWith("/")) throw refuse(source, "expected debian:SUITE or an absolute path");
  for (const path of [source, modules ?? "/"])
    if (path.includes("\0") || path.split("/").includes("..")) throw refuse(path, "the path must not contain ..");
  if (modules !== undefined && !modules.startsWith("/")) throw invalidField("modules", "the path must be absolute");
  if (modules !== undefined && initrd === false) throw invalidField("modules", "without an initrd there is no place for modules");
  return { kind: "file", path: source, modules: modules?.replace(/(?<=.)\/+$/, "") };
}

function refuse(source: string, why: string): PlatformError {
  return new PlatformError("IMAGE_SOURCE_INVALID", `Invalid source ${JSON.stringify(source.slice(0, 200))}: ${why}`, {
    fields: [{ path: "source", message: why }],
  });
}

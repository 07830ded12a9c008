/** What `run` needs before a VM: the image, and a kernel to boot it with. Both are imported when they are not there. */
import { readFile } from "node:fs/promises";
import { isPlatformError, PlatformError } from "@fluxvm/core";
import type { ImageView, KernelView } from "@fluxvm/sdk";
import type { CommandContext } from "../context.ts";
import { followImport } from "./import-object.ts";

/** What only a source looks like, and no name: a scheme or an absolute path. */
const SOURCE = /^(oci:|oci-archive:|docker:\/\/|debian:|https?:\/\/|\/)/;

/** The image of that name, id or source. @throws PlatformError `IMAGE_NOT_FOUND` */
export async function ensureImage(context: CommandContext, reference: string): Promise<ImageView> {
  const client = await context.client();
  const { signal } = context;
  const existing = await findOrUndefined(async () => await client.images.get(reference, { signal }));
  if (existing?.state === "ready") return existing;
  if (existing?.state === "importing") return await followImport(context, client.images, existing);
  if (existing === undefined && !SOURCE.test(reference)) {
    const message = `There is no image ${JSON.stringify(reference)}, and it is no source to import one from (try docker://NAME or debian:SUITE)`;
    throw new PlatformError("IMAGE_NOT_FOUND", message);
  }
  if (existing !== undefined) await client.images.delete(existing.id, { signal }); // a failed import is tried again
  const source = existing?.source ?? reference;
  const name = existing !== undefined && existing.name !== source ? { name: existing.name } : {};
  return await followImport(context, client.images, await client.images.create({ source, ...name }, { signal }));
}

/** The kernel called for, or the default one; without any, the one of the host's own Debian suite is imported. */
export async function ensureKernel(context: CommandContext, reference: string | undefined): Promise<KernelView> {
  const client = await context.client();
  const { signal } = context;
  if (reference !== undefined) return await client.kernels.get(reference, { signal });
  const kernels = await client.kernels.list({ signal });
  const ready = kernels.find((kernel) => kernel.is_default && kernel.state === "ready");
  if (ready !== undefined) return ready;
  const pending = kernels.find((kernel) => kernel.state === "importing");
  if (pending !== undefined) return await followImport(context, client.kernels, pending);
  const source = `debian:${await readHostSuite()}`;
  context.printer.note(`There is no guest kernel yet: importing ${source}`);
  return await followImport(context, client.kernels, await client.kernels.create({ source }, { signal }));
}

async function findOrUndefined<T>(get: () => Promise<T>): Promise<T | undefined> {
  try {
    return await get();
  } catch (error) {
    if (isPlatformError(error) && error.class === "not_found") return undefined;
    throw error;
  }
}

/** os-release(5) of this machine, which is the daemon's when it is reached over its socket. */
async function readHostSuite(): Promise<string> {
  const text = await readFile("/etc/os-release", "utf8").catch(() => "");
  return /^VERSION_CODENAME="?([a-z]+)"?$/m.exec(text)?.[1] ?? "bookworm";
}

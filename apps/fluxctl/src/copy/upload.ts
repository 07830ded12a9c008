/** From here into a guest: directories, files as streams, and links as links. */
import { createReadStream } from "node:fs";
import { basename, join, posix } from "node:path";
import { isPlatformError, PlatformError } from "@fluxvm/core";
import type { Client } from "@fluxvm/sdk";
import type { ProgressDisplay } from "../output/progress.ts";
import { countBytes } from "./count-bytes.ts";
import type { CopyEntry } from "./entry.ts";
import { walkLocal } from "./walk-local.ts";

export interface Copy {
  readonly client: Client;
  readonly vm: string;
  readonly from: string;
  readonly to: string;
  readonly progress: ProgressDisplay;
  readonly signal: AbortSignal;
}

export interface CopyResult {
  /** Where it was put. */
  readonly target: string;
  readonly files: number;
  readonly bytes: number;
  readonly skipped: readonly string[];
}

export async function upload(copy: Copy): Promise<CopyResult> {
  const plan = await walkLocal(copy.from);
  const target = await chooseTarget(copy);
  const count = countBytes(copy.progress, plan.totalBytes);
  for (const entry of plan.entries) await putEntry(copy, { entry, target, count });
  return { target, files: plan.entries.filter((entry) => entry.kind === "file").length, bytes: count.total(), skipped: plan.skipped };
}

/** An existing directory, or a path that ends with a slash, takes the source in under its own name. */
async function chooseTarget(copy: Copy): Promise<string> {
  const { client, vm, to, signal } = copy;
  const isDirectory = to.endsWith("/") || (await findType({ client, vm, path: to, signal })) === "directory";
  return isDirectory ? posix.join(to, basename(join(copy.from, "."))) : to;
}

async function findType(place: {
  readonly client: Client;
  readonly vm: string;
  readonly path: string;
  readonly signal: AbortSignal;
}): Promise<string | undefined> {
  try {
    return (await place.client.files.stat(place.vm, place.path, { signal: place.signal })).type;
  } catch (error) {
    if (isPlatformError(error, "GUEST_FILE_NOT_FOUND")) return undefined;
    throw error;
  }
}

interface Put {
  readonly entry: CopyEntry;
  readonly target: string;
  readonly count: ReturnType<typeof countBytes>;
}

async function putEntry(copy: Copy, { entry, target, count }: Put): Promise<void> {
  const { client, vm, signal } = copy;
  const path = posix.join(target, entry.path);
  switch (entry.kind) {
    case "directory":
      return await client.files.makeDirectory(vm, path, { parents: true, mode: entry.mode, signal });
    case "file": {
      const source = createReadStream(join(copy.from, entry.path));
      await client.files.write(vm, path, count.through(source), { mode: entry.mode, signal });
      return;
    }
    case "symlink":
      return await makeLink(copy, { path, target: entry.target });
  }
}

/** The file routes make no links, so the guest's own `ln` does. */
async function makeLink({ client, vm, signal }: Copy, link: { readonly path: string; readonly target: string }): Promise<void> {
  const result = await client.agent.run(vm, { command: ["ln", "-sfn", "--", link.target, link.path] }, { signal });
  if (result.exit.code === 0) return;
  throw new PlatformError("GUEST_FILE_IO", `Cannot make the link ${link.path} in the guest: ${result.stderr.trim() || "ln failed"}`);
}

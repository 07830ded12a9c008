/** A source to the files of a kernel object: `vmlinux` (an uncompressed PVH ELF), `initrd`, `config`. */
import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { mkdir, open, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { PlatformError } from "@fluxvm/core";
import type { KernelContent } from "../content.ts";
import { digestOfInputs } from "../digest.ts";
import type { ContentStore } from "../library/content-store.ts";
import type { ImportContext, ImportResult } from "../library/library.ts";
import type { ImageLimits, ImageTools } from "../ports.ts";
import { extractKernel, type ExtractedKernel } from "./bzimage.ts";
import { fetchDebianKernel } from "./debian-kernel.ts";
import { explainNoPvh, isElf } from "./elf.ts";
import { buildInitrd } from "./initrd.ts";
import type { KernelSource } from "./kernel-source.ts";
import { collectModules, NO_MODULES } from "./modules.ts";

export interface KernelImport {
  readonly source: KernelSource;
  readonly withInitrd: boolean;
  readonly tools: ImageTools;
  readonly limits: ImageLimits;
  readonly files: ContentStore;
  readonly context: ImportContext;
}

interface Parts {
  readonly image: string;
  /** What the user called it, for messages. */
  readonly name: string;
  readonly modules: string | undefined;
  readonly config: string | undefined;
}

const MAX_KERNEL_BYTES = 512 << 20;

export async function importKernel(request: KernelImport): Promise<ImportResult<KernelContent>> {
  const { withInitrd, files, context } = request;
  const { signal } = context;
  const parts = await fetchParts(request);
  context.report({ phase: "converting", done_bytes: 0 });
  const kernel = await readKernel(parts, signal);
  const initrd = withInitrd ? await makeInitrd(request, parts) : undefined;
  const config = parts.config === undefined ? undefined : await readFile(parts.config);
  const digest = digestOfInputs({ from: "kernel", vmlinux: sha256(kernel.elf), initrd: initrd === undefined ? null : sha256(initrd) });
  const held = await files.ensure<KernelContent>(digest, signal, async (directory) => {
    await writeFile(join(directory, "vmlinux"), kernel.elf, { mode: 0o444 });
    if (initrd !== undefined) await writeFile(join(directory, "initrd"), initrd, { mode: 0o444 });
    if (config !== undefined) await writeFile(join(directory, "config"), config, { mode: 0o444 });
    return {
      digest,
      ...(kernel.release === undefined ? {} : { release: kernel.release }),
      hasInitrd: initrd !== undefined,
      hasAgent: initrd !== undefined,
      storedBytes: kernel.elf.length + (initrd?.length ?? 0) + (config?.length ?? 0),
    };
  });
  return { content: held.meta, release: held.release, ...(kernel.release === undefined ? {} : { name: kernel.release }) };
}

async function fetchParts({ source, limits, context }: KernelImport): Promise<Parts> {
  if (source.kind === "file") return { image: source.path, name: source.path, modules: source.modules, config: undefined };
  const work = join(context.directory, "debian");
  await mkdir(work, { mode: 0o711 });
  const report = (phase: string, message: string): void => context.report({ phase, done_bytes: 0, message });
  const fetched = await fetchDebianKernel({ suite: source.suite, work, timeoutMs: limits.importTimeoutMs, signal: context.signal, report });
  return { ...fetched, name: `debian:${source.suite}` };
}

async function readKernel(parts: Parts, signal: AbortSignal): Promise<ExtractedKernel> {
  const file = await readBounded(parts.image, parts.name);
  const kernel: ExtractedKernel = isElf(file) ? { elf: file, release: undefined } : await extractKernel(file, parts.name, signal);
  const problem = explainNoPvh(kernel.elf);
  if (problem !== undefined) throw new PlatformError("KERNEL_INVALID", `Cannot use kernel ${JSON.stringify(parts.name)}: ${problem}`);
  return kernel;
}

async function readBounded(path: string, name: string): Promise<Buffer> {
  const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch((error: unknown) => {
    throw new PlatformError("IMAGE_SOURCE_UNREACHABLE", `Cannot read the kernel ${JSON.stringify(name)}`, { cause: error });
  });
  try {
    const stat = await handle.stat();
    if (!stat.isFile()) throw new PlatformError("IMAGE_SOURCE_INVALID", `${JSON.stringify(name)} is no file`);
    if (stat.size > MAX_KERNEL_BYTES)
      throw new PlatformError("KERNEL_INVALID", `The kernel ${JSON.stringify(name)} is larger than ${MAX_KERNEL_BYTES} bytes`);
    return await handle.readFile();
  } finally {
    await handle.close();
  }
}

async function makeInitrd({ tools, context }: KernelImport, parts: Parts): Promise<Buffer> {
  const agent = await readFile(tools.guestAgent).catch((error: unknown) => {
    throw new PlatformError("HOST_TOOL_MISSING", "The guest agent's binary is not there: build it, or set tools.guest_agent", {
      cause: error,
    });
  });
  const modules = parts.modules === undefined ? NO_MODULES : await collectModules(parts.modules, context.signal);
  return buildInitrd(agent, modules);
}

function sha256(data: Buffer): string {
  return createHash("sha256").update(data).digest("hex");
}

/** Fetches an image from a registry with skopeo into a layout; auth files, mirrors and policy are skopeo's business. */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { isPlatformError, PlatformError, type Clock } from "@fluxvm/core";
import type { ImageTools } from "../ports.ts";
import { asImportError, leash, runProgram } from "../program.ts";

export interface PullRequest {
  readonly reference: string;
  /** An empty directory; the layout becomes `layout` in it. */
  readonly work: string;
  readonly tools: ImageTools;
  readonly timeoutMs: number;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly onBytes: (bytes: number) => void;
}

const POLL_MS = 300;

/** Resolves with the layout's directory. @throws PlatformError `IMAGE_SOURCE_UNREACHABLE`, `HOST_OUT_OF_SPACE` */
export async function pullImage(request: PullRequest): Promise<string> {
  const { reference, work, tools, timeoutMs, signal } = request;
  const layout = join(work, "layout");
  const plain = isLoopback(reference) ? ["--src-tls-verify=false"] : [];
  const args = ["--tmpdir", work, "copy", "--quiet", ...plain, `docker://${reference}`, `oci:${layout}:image`];
  const watching = new AbortController();
  const watch = watchGrowth(layout, request, watching.signal);
  try {
    const { command, args: leashed } = leash(tools.skopeo, args, { isRoot: process.geteuid?.() === 0 });
    await runProgram({ command, args: leashed, env: { HOME: "/root", TMPDIR: work, ...tools.skopeoEnvironment }, timeoutMs, signal });
    return layout;
  } catch (error) {
    throw describe(error, reference);
  } finally {
    watching.abort();
    await watch;
  }
}

/** Plain HTTP is accepted from this machine alone. */
export function isLoopback(reference: string): boolean {
  const host = reference.split("/", 1)[0] ?? "";
  return reference.includes("/") && /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?$/.test(host);
}

function describe(error: unknown, reference: string): unknown {
  if (isPlatformError(error, "HOST_TOOL_FAILED") && /(exit code 127|unshare: failed to execute)/.test(error.message)) {
    return new PlatformError("HOST_TOOL_MISSING", 'skopeo is not installed; "fluxctl doctor" says how to get it', { cause: error });
  }
  const translated = asImportError(error, "IMAGE_SOURCE_UNREACHABLE", `Cannot fetch ${reference}`);
  if (!isPlatformError(translated, "IMAGE_SOURCE_UNREACHABLE")) return translated;
  // skopeo's log lines carry their text as msg="…"; the rest of them is noise.
  const said = [...translated.message.matchAll(/msg="((?:[^"\\]|\\.)*)"/g)].at(-1)?.[1]?.replaceAll('\\"', '"');
  if (said === undefined) return translated;
  return new PlatformError("IMAGE_SOURCE_UNREACHABLE", `Cannot fetch ${reference}: ${said}`, { cause: error });
}

async function watchGrowth(layout: string, request: PullRequest, signal: AbortSignal): Promise<void> {
  const blobs = join(layout, "blobs", "sha256");
  while (!signal.aborted) {
    request.onBytes(await sizeOf(blobs));
    await request.clock.sleep(POLL_MS, { signal }).catch(() => undefined);
  }
}

async function sizeOf(directory: string): Promise<number> {
  let total = 0;
  for (const name of await readdir(directory).catch(() => [])) {
    total += (await stat(join(directory, name)).catch(() => undefined))?.size ?? 0;
  }
  return total;
}

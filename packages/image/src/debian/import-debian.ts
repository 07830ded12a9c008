/**
 * A minimal Debian root file system, built by mmdebstrap from the machine's own sources and unpacked like any layer.
 *
 * An equal request is answered by the existing record until that is deleted. Two records of one suite, package list,
 * sources and day share their files; on another day the same request under another name is built anew.
 */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isPlatformError, PlatformError } from "@fluxvm/core";
import { spawnTool } from "@fluxvm/host";
import { DISK_RAW, type ImageContent } from "../content.ts";
import { digestOfInputs } from "../digest.ts";
import { outOfSpace, saysOutOfSpace } from "../host-error.ts";
import type { ImageImport } from "../import-source.ts";
import type { ImportResult } from "../library/library.ts";
import { leash, runProgram } from "../program.ts";
import { finishRootfs } from "../rootfs/finish-rootfs.ts";
import type { RootfsLayer } from "../rootfs/layer.ts";
import { readMke2fsVersion } from "../rootfs/mke2fs.ts";
import type { ImageSource } from "../source.ts";
import { debianArchitecture, readAptOptions, readSuiteSources } from "./host-sources.ts";

export type DebianSource = Extract<ImageSource, { readonly kind: "debian" }>;

const DAY_MS = 86_400_000;
/** Documentation and translations: two thirds of the files of a minimal system, and nobody reads them in a VM. */
const LEFT_OUT = [
  "/usr/share/doc/*",
  "/usr/share/man/*",
  "/usr/share/locale/*",
  "/usr/share/info/*",
  "/usr/share/lintian/*",
  "/usr/share/groff/*",
];
const KEPT = ["/usr/share/doc/*/copyright", "/usr/share/locale/locale.alias"];
/** What would give the image an identity or tell of this host. */
const CUSTOMIZE = [
  'rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/var/lib/dbus/machine-id "$1"/var/lib/systemd/random-seed',
  'if [ -e "$1"/etc/machine-id ] || [ -d "$1"/lib/systemd/system ]; then : > "$1"/etc/machine-id; fi',
  'rm -f "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/etc/dpkg/dpkg.cfg.d/99mmdebstrap',
  'rm -rf "$1"/var/log/apt "$1"/var/log/dpkg.log "$1"/var/log/bootstrap.log "$1"/var/log/alternatives.log "$1"/var/cache/debconf/*-old',
];

interface Recipe {
  readonly args: readonly string[];
  readonly epoch: number;
}

export async function importDebian(request: ImageImport, source: DebianSource): Promise<ImportResult<ImageContent>> {
  const { tools, files, minBytes, clock, context } = request;
  const { signal } = context;
  const [sources, aptOptions, mke2fs, mmdebstrap] = await Promise.all([
    readSuiteSources(source.suite),
    readAptOptions(signal),
    readMke2fsVersion(tools.mke2fs, signal),
    readMmdebstrapVersion(tools.mmdebstrap, signal),
  ]);
  const day = Math.floor(clock.wallMs() / DAY_MS);
  const digest = digestOfInputs({
    from: "debian",
    suite: source.suite,
    packages: source.packages,
    sources,
    day,
    minBytes,
    mke2fs,
    mmdebstrap,
    left: LEFT_OUT,
    hooks: CUSTOMIZE,
  });
  const held = await files.ensure<ImageContent>(digest, signal, async (directory) => {
    const work = join(context.directory, "debian");
    await mkdir(work, { mode: 0o711 });
    const sourcesFile = join(work, "host.sources");
    await writeFile(sourcesFile, sources);
    const recipe: Recipe = { args: bootstrapArgs(source, sourcesFile, aptOptions), epoch: (day * DAY_MS) / 1000 };
    const layer = bootstrapLayer(request, source, { recipe, work });
    const onBytes = (done: number): void => context.report({ phase: "unpacking", done_bytes: done });
    return await finishRootfs({ request, layers: [layer], digest, epoch: recipe.epoch, disk: join(directory, DISK_RAW), onBytes });
  });
  return { content: held.meta, release: held.release };
}

async function readMmdebstrapVersion(mmdebstrap: string, signal: AbortSignal): Promise<string> {
  const { stdout } = await runProgram({ command: mmdebstrap, args: ["--version"], timeoutMs: 30_000, signal });
  return stdout.trim();
}

function bootstrapArgs(source: DebianSource, sourcesFile: string, aptOptions: readonly string[]): string[] {
  return [
    `--mode=${process.geteuid?.() === 0 ? "root" : "unshare"}`,
    "--variant=minbase",
    "--format=tar",
    `--architectures=${debianArchitecture()}`,
    "--skip=output/dev",
    ...(source.packages.length === 0 ? [] : [`--include=${source.packages.join(",")}`]),
    "--dpkgopt=force-unsafe-io",
    ...LEFT_OUT.map((path) => `--dpkgopt=path-exclude=${path}`),
    ...KEPT.map((path) => `--dpkgopt=path-include=${path}`),
    '--aptopt=Acquire::Languages "none"',
    ...aptOptions.map((line) => `--aptopt=${line.replace(/;$/, "")}`),
    ...CUSTOMIZE.map((hook) => `--customize-hook=${hook}`),
    source.suite,
    "-",
    sourcesFile,
  ];
}

/** The tar that mmdebstrap writes, straight into the unpacker. */
function bootstrapLayer(
  request: ImageImport,
  source: DebianSource,
  { recipe, work }: { readonly recipe: Recipe; readonly work: string },
): RootfsLayer {
  const { tools, limits, context } = request;
  return {
    name: `debian:${source.suite}`,
    verify: async () => undefined,
    open: async function* open(signal) {
      const { command, args } = leash(tools.mmdebstrap, recipe.args, { isRoot: process.geteuid?.() === 0 });
      context.report({ phase: "building", done_bytes: 0 });
      const env = { TMPDIR: work, SOURCE_DATE_EPOCH: String(recipe.epoch), DEBIAN_FRONTEND: "noninteractive" };
      const tool = spawnTool({ command, args, env, cwd: work, timeoutMs: limits.importTimeoutMs, signal });
      try {
        tool.stdin.end();
        yield* tool.stdout as AsyncIterable<Buffer>; // no encoding was set
        await tool.done;
      } catch (error) {
        throw describe(error, source.suite);
      } finally {
        tool.kill();
        await tool.done.catch(() => undefined);
      }
    },
  };
}

function describe(error: unknown, suite: string): unknown {
  if (!isPlatformError(error, "HOST_TOOL_FAILED")) return error;
  const { message } = error;
  if (saysOutOfSpace(message)) return outOfSpace(error);
  const unreachable = /could not resolve|could not connect|connection (failed|refused|timed out)|temporary failure|failed to fetch/i.test(
    message,
  );
  return new PlatformError(unreachable ? "IMAGE_SOURCE_UNREACHABLE" : "IMAGE_BUILD_FAILED", `Cannot build debian:${suite}: ${message}`, {
    cause: error,
  });
}

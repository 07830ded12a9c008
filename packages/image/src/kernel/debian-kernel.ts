/** Fetches the kernel package that `linux-image-cloud-ARCH` of a suite stands for, without touching the host's apt state. */
import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isPlatformError, PlatformError } from "@fluxvm/core";
import { debianArchitecture, readAptOptions, readSuiteSources } from "../debian/host-sources.ts";
import { asImportError, leash, runProgram } from "../program.ts";

export interface DebianKernelRequest {
  readonly suite: string;
  /** An empty directory. */
  readonly work: string;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  readonly report: (phase: string, message: string) => void;
}

export interface DebianKernel {
  readonly image: string;
  readonly modules: string;
  readonly config: string | undefined;
}

/** @throws PlatformError `IMAGE_SOURCE_INVALID`, `IMAGE_SOURCE_UNREACHABLE`, `HOST_OUT_OF_SPACE`, `HOST_TOOL_MISSING` */
export async function fetchDebianKernel(request: DebianKernelRequest): Promise<DebianKernel> {
  const { suite, work, signal, report } = request;
  const apt = await prepareApt(request);
  report("fetching", "package lists");
  await run(request, "apt-get", [...apt, "--quiet", "update"]);
  const wanted = await findPackage(request, apt);
  report("fetching", wanted);
  await run(request, "apt-get", [...apt, "--quiet", "download", wanted]);
  const archive = (await readdir(work)).find((name) => name.endsWith(".deb"));
  if (archive === undefined) throw new PlatformError("IMAGE_SOURCE_UNREACHABLE", `The package ${wanted} of ${suite} was not downloaded`);
  report("unpacking", wanted);
  const tree = join(work, "tree");
  await run(request, "dpkg-deb", ["--extract", join(work, archive), tree]);
  signal.throwIfAborted();
  return await findParts(tree, wanted);
}

/** Options that point apt at lists, cache and sources of its own. */
async function prepareApt({ suite, work, signal }: DebianKernelRequest): Promise<string[]> {
  const sources = join(work, "host.sources");
  await writeFile(sources, await readSuiteSources(suite));
  const reaching = await readAptOptions(signal);
  const configuration = join(work, "apt.conf");
  const directories = ["lists/partial", "cache/archives/partial"];
  for (const directory of directories) await mkdir(join(work, directory), { recursive: true, mode: 0o711 });
  const lines = [
    `Dir::Etc::SourceList "${sources}";`,
    'Dir::Etc::SourceParts "/dev/null";',
    `Dir::State::Lists "${join(work, "lists")}";`,
    `Dir::Cache "${join(work, "cache")}";`,
    'Dir::State::status "/dev/null";',
    'Acquire::Languages "none";',
    'APT::Get::List-Cleanup "false";',
    `APT::Architecture "${debianArchitecture()}";`,
    ...reaching,
  ];
  await writeFile(configuration, `${lines.join("\n")}\n`);
  return ["-c", configuration];
}

async function findPackage(request: DebianKernelRequest, apt: readonly string[]): Promise<string> {
  const meta = `linux-image-cloud-${debianArchitecture()}`;
  const { stdout } = await run(request, "apt-cache", [...apt, "show", "--no-all-versions", meta]).catch((error: unknown) => {
    if (!isPlatformError(error, "IMAGE_SOURCE_UNREACHABLE")) throw error;
    throw new PlatformError("IMAGE_SOURCE_INVALID", `The suite ${JSON.stringify(request.suite)} has no package ${meta}`, { cause: error });
  });
  const name = /^Depends: .*?(linux-image-[a-z0-9.+~-]+)/m.exec(stdout)?.[1];
  if (name === undefined)
    throw new PlatformError("IMAGE_SOURCE_INVALID", `The package ${meta} of ${JSON.stringify(request.suite)} names no kernel`);
  return name;
}

async function run(
  { work, timeoutMs, signal, suite }: DebianKernelRequest,
  command: string,
  args: readonly string[],
): Promise<{ readonly stdout: string }> {
  try {
    const leashed = leash(command, args, { isRoot: process.geteuid?.() === 0 });
    return await runProgram({ ...leashed, cwd: work, timeoutMs, signal, env: { DEBIAN_FRONTEND: "noninteractive", TMPDIR: work } });
  } catch (error) {
    if (isPlatformError(error, "HOST_TOOL_FAILED") && error.message.includes("exit code 127")) {
      throw new PlatformError("HOST_TOOL_MISSING", `A debian: source needs ${command}, which is not installed`, { cause: error });
    }
    throw asImportError(error, "IMAGE_SOURCE_UNREACHABLE", `Cannot fetch the kernel of debian:${suite}`);
  }
}

async function findParts(tree: string, name: string): Promise<DebianKernel> {
  const boot = await readdir(join(tree, "boot")).catch(() => []);
  const image = boot.find((file) => file.startsWith("vmlinuz-"));
  const config = boot.find((file) => file.startsWith("config-"));
  for (const place of ["lib/modules", "usr/lib/modules"]) {
    const [release] = await readdir(join(tree, place)).catch(() => []);
    if (image === undefined || release === undefined) continue;
    return {
      image: join(tree, "boot", image),
      modules: join(tree, place, release),
      config: config === undefined ? undefined : join(tree, "boot", config),
    };
  }
  throw new PlatformError("KERNEL_INVALID", `The package ${name} holds no kernel with modules`);
}

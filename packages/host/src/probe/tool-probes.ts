/** External programs: each is made to do something small. */
import { existsSync } from "node:fs";
import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isPlatformError } from "@fluxvm/core";
import { runTool } from "../process/run-tool.ts";
import type { ProbeName, ProbeResult } from "./host-report.ts";
import { absent, found, type ProbeContext } from "./probe-context.ts";

const TIMEOUT_MS = 15_000;
const VIRTIOFSD_PATHS = [
  "/usr/libexec/virtiofsd",
  "/usr/lib/qemu/virtiofsd",
  "/usr/libexec/qemu/virtiofsd",
  "/usr/lib/virtiofsd",
  "/usr/bin/virtiofsd",
];

async function attempt(
  name: ProbeName,
  context: ProbeContext,
  use: { readonly packageName: string; run(): Promise<ProbeResult> },
): Promise<ProbeResult> {
  try {
    return await use.run();
  } catch (error) {
    context.signal.throwIfAborted();
    const detail = error instanceof Error ? error.message : String(error);
    const status = isPlatformError(error, "HOST_TOOL_MISSING") ? "missing" : "broken";
    const verb = status === "missing" ? "install" : "install --reinstall";
    return absent(name, status, { detail, advice: `apt-get ${verb} ${use.packageName}` });
  }
}

async function withTemporaryDir<T>(context: ProbeContext, work: (dir: string) => Promise<T>): Promise<T> {
  const dir = await mkdtemp(join(context.stateDir, ".probe-"));
  try {
    return await work(dir);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

export async function probeQemu(context: ProbeContext): Promise<ProbeResult> {
  const command = process.arch === "arm64" ? "qemu-system-aarch64" : "qemu-system-x86_64";
  const packageName = process.arch === "arm64" ? "qemu-system-arm" : "qemu-system-x86";
  return await attempt("qemu", context, {
    packageName,
    run: async () => {
      const { stdout } = await runTool({ command, args: ["--version"], timeoutMs: TIMEOUT_MS, signal: context.signal });
      const version = /version (\d+\.\d+(?:\.\d+)?)/.exec(stdout)?.[1] ?? "unknown";
      const help = await runTool({ command, args: ["-machine", "help"], timeoutMs: TIMEOUT_MS, signal: context.signal });
      const machines = ["microvm", "q35", "virt"].filter((machine) => new RegExp(`^${machine}\\s`, "m").test(help.stdout));
      return found("qemu", `version ${version}, machines ${machines.join(", ")}`, { version, machines, command });
    },
  });
}

export async function probeVirtiofsd(context: ProbeContext): Promise<ProbeResult> {
  const path = VIRTIOFSD_PATHS.find((candidate) => existsSync(candidate));
  const command = path ?? "virtiofsd";
  return await attempt("virtiofsd", context, {
    packageName: "virtiofsd (or qemu-system-common on Debian 12)",
    run: async () => {
      const { stdout } = await runTool({ command, args: ["--print-capabilities"], timeoutMs: TIMEOUT_MS, signal: context.signal });
      JSON.parse(stdout);
      return found("virtiofsd", "told its capabilities", { path: command });
    },
  });
}

/** Digests a manifest, which needs no network. */
export async function probeSkopeo(context: ProbeContext): Promise<ProbeResult> {
  return await attempt("skopeo", context, {
    packageName: "skopeo",
    run: async () =>
      await withTemporaryDir(context, async (dir) => {
        const manifest = join(dir, "manifest.json");
        await writeFile(manifest, "{}");
        const common = { command: "skopeo", timeoutMs: TIMEOUT_MS, signal: context.signal };
        const { stdout: version } = await runTool({ ...common, args: ["--version"] });
        await runTool({ ...common, args: ["manifest-digest", manifest] });
        return found("skopeo", version.trim(), { version: /version (\S+)/.exec(version)?.[1] });
      }),
  });
}

export async function probeMkfs(context: ProbeContext): Promise<ProbeResult> {
  return await attempt("mkfs", context, {
    packageName: "e2fsprogs",
    run: async () =>
      await withTemporaryDir(context, async (dir) => {
        const image = join(dir, "image");
        const file = await open(image, "wx", 0o600);
        await file.truncate(8 << 20);
        await file.close();
        await runTool({ command: "mke2fs", args: ["-q", "-F", "-t", "ext4", image], timeoutMs: TIMEOUT_MS, signal: context.signal });
        const { stderr } = await runTool({ command: "mke2fs", args: ["-V"], timeoutMs: TIMEOUT_MS, signal: context.signal });
        return found("mkfs", "an ext4 file system was made", { version: /mke2fs (\S+)/.exec(stderr)?.[1] });
      }),
  });
}

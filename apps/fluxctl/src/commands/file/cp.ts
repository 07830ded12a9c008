import { once } from "node:events";
import { formatBytes, PlatformError } from "@fluxvm/core";
import { defineCommand } from "../../command.ts";
import type { CommandContext } from "../../context.ts";
import { countBytes } from "../../copy/count-bytes.ts";
import { download } from "../../copy/download.ts";
import { upload, type CopyResult } from "../../copy/upload.ts";
import { parsePlace, type Place } from "../../guest-path.ts";

/** A copy that is over by then needs no progress. */
const SILENT_MS = 500;

type GuestPlace = Extract<Place, { kind: "guest" }>;

export const cp = defineCommand({
  path: ["cp"],
  summary: "Copy files and directories into and out of a VM",
  description:
    "Copy a file, or a directory with all below it, into or out of a VM. An existing directory, or a path that ends with a slash, takes the source in under its own name. Modes and links are kept; - is standard input or output.",
  arguments: [
    { name: "<source>", description: "a local path, or VM:/path" },
    { name: "<target>", description: "a local path, or VM:/path" },
  ],
  examples: ["fluxctl cp ./site web:/var/www/", "fluxctl cp web:/var/log/syslog .", "fluxctl cp - web:/etc/motd < motd"],
  async run(context, input) {
    const [from, to] = [parsePlace(input.argument(0)), parsePlace(input.argument(1))];
    if (from.kind === to.kind) {
      const hint = from.kind === "local" ? "one side must be VM:/path" : "one side must be local; copy through a local file";
      throw new PlatformError("REQUEST_INVALID", `Cannot copy ${input.argument(0)} to ${input.argument(1)}: ${hint}`);
    }
    if (to.kind === "guest") await copyIn(context, from.path, to);
    else if (from.kind === "guest") await copyOut(context, from, to.path);
    return 0;
  },
});

async function copyIn(context: CommandContext, from: string, to: GuestPlace): Promise<void> {
  const client = await context.client();
  const { signal } = context;
  const progress = context.progress(`${from} -> ${to.vm}:${to.path}`, { silentMs: SILENT_MS });
  try {
    if (from !== "-") return report(context, to.vm, await upload({ client, vm: to.vm, from, to: to.path, progress, signal }));
    const count = countBytes(progress, undefined);
    await client.files.write(to.vm, to.path, count.through(context.environment.stdin), { signal });
    report(context, to.vm, { target: to.path, files: 1, bytes: count.total(), skipped: [] });
  } finally {
    progress.clear();
  }
}

async function copyOut(context: CommandContext, from: GuestPlace, to: string): Promise<void> {
  const client = await context.client();
  const { signal } = context;
  const progress = context.progress(`${from.vm}:${from.path} -> ${to}`, { silentMs: SILENT_MS });
  try {
    if (to !== "-") return report(context, undefined, await download({ client, vm: from.vm, from: from.path, to, progress, signal }));
    const { stdout } = context.environment;
    const file = await client.files.read(from.vm, from.path, { signal });
    for await (const chunk of file.content) if (!stdout.write(chunk)) await once(stdout, "drain", { signal });
  } finally {
    progress.clear();
  }
}

function report(context: CommandContext, vm: string | undefined, result: CopyResult): void {
  for (const path of result.skipped) context.printer.note(`fluxctl: left out ${path}: neither file, directory nor link`);
  const target = vm === undefined ? result.target : `${vm}:${result.target}`;
  const { files, bytes, skipped } = result;
  context.printer.done(`${target}: ${files} ${files === 1 ? "file" : "files"}, ${formatBytes(bytes)}`, { target, files, bytes, skipped });
}

import { posix } from "node:path";
import type { FileStat } from "@fluxvm/sdk";
import { defineCommand } from "../../command.ts";
import { requireGuestPlace } from "../../guest-path.ts";
import type { Presentation } from "../../output/printer.ts";

export const FILE_PRESENTATION: Presentation<FileStat> = {
  name: (file) => posix.basename(file.path),
  columns: [
    { title: "MODE", value: (file) => formatMode(file) },
    { title: "OWNER", value: (file) => `${file.uid}:${file.gid}` },
    { title: "SIZE", value: (file) => file.size },
    { title: "MODIFIED", value: (file) => file.modified_at },
    { title: "NAME", value: (file) => posix.basename(file.path) + (file.target === undefined ? "" : ` -> ${file.target}`) },
  ],
  details: [
    { title: "Path", value: (file) => file.path },
    { title: "Type", value: (file) => file.type },
    { title: "Target", value: (file) => file.target },
    { title: "Size", value: (file) => file.size },
    { title: "Mode", value: (file) => formatMode(file) },
    { title: "Owner", value: (file) => `${file.uid}:${file.gid}` },
    { title: "Modified", value: (file) => file.modified_at },
  ],
};

const TYPE_LETTERS = { file: "-", directory: "d", symlink: "l", other: "?" } as const;

function formatMode(file: FileStat): string {
  return `${TYPE_LETTERS[file.type]}${(file.mode & 0o7777).toString(8).padStart(4, "0")}`;
}

export const fileLs = defineCommand({
  path: ["file", "ls"],
  aliases: ["list"],
  summary: "List a directory in a VM",
  arguments: [{ name: "<vm:path>", description: "the directory" }],
  async run(context, input) {
    const { vm, path } = requireGuestPlace(input.argument(0));
    const client = await context.client();
    const files = await client.files.list(vm, path, { signal: context.signal });
    context.printer.list(
      files.toSorted((a, b) => (a.path < b.path ? -1 : 1)),
      FILE_PRESENTATION,
    );
    return 0;
  },
});

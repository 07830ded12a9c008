import { PlatformError } from "@fluxvm/core";
import { runExec } from "../../attach/run-exec.ts";
import { defineCommand, type OptionDefinition } from "../../command.ts";
import { parsePairs, parseSeconds } from "../../option-values.ts";

export const PROCESS_OPTIONS: readonly OptionDefinition[] = [
  { flags: "-e, --env <key=value>", description: "added to its environment", isList: true },
  { flags: "-w, --workdir <path>", description: "its working directory" },
  { flags: "-u, --user <user>", description: "name, uid or uid:gid (default: the image's user)" },
  { flags: "--timeout <duration>", description: "kill it after this long, with exit code 124" },
];

export const exec = defineCommand({
  path: ["exec"],
  summary: "Run a command in a VM",
  description:
    "Run a command in a VM, with its output here as it comes. The exit code is the command's own; 128 and the signal's number when a signal ended it.",
  arguments: [
    { name: "<vm>", description: "id or name" },
    { name: "[command...]", description: "the command and its arguments" },
  ],
  options: [
    { flags: "-i, --interactive", description: "forward standard input" },
    { flags: "-t, --tty", description: "give it a terminal" },
    { flags: "-d, --detach", description: "start it and print its id" },
    ...PROCESS_OPTIONS,
  ],
  isPassThrough: true,
  examples: ["fluxctl exec web -- uname -a", "fluxctl exec -it web bash", "tar c src | fluxctl exec -i web -- tar x -C /root"],
  async run(context, input) {
    const vm = input.argument(0);
    const command = input.rest(1);
    if (command.length === 0)
      throw new PlatformError("REQUEST_INVALID", "Which command? Try `fluxctl exec VM -- COMMAND`, or `fluxctl console VM` for a shell");
    const env = parsePairs("--env", input.texts("env"));
    const timeout = input.text("timeout");
    const request = {
      command: [...command],
      ...(Object.keys(env).length === 0 ? {} : { env }),
      ...(input.text("workdir") === undefined ? {} : { working_dir: input.text("workdir") }),
      ...(input.text("user") === undefined ? {} : { user: input.text("user") }),
      ...(timeout === undefined ? {} : { timeout_seconds: parseSeconds("--timeout", timeout) }),
    };
    if (!input.isOn("detach"))
      return await runExec(context, { vm, request, hasInput: input.isOn("interactive"), isTty: input.isOn("tty") });
    const client = await context.client();
    const view = await client.execs.create(vm, request, { signal: context.signal });
    context.printer.result(view, { name: (item) => item.id, columns: [] }, view.id);
    return 0;
  },
});

import { isPlatformError, newId, systemRandom } from "@fluxvm/core";
import type { CreateExecRequest, ImageView } from "@fluxvm/sdk";
import { isTerminal } from "../../attach/raw-terminal.ts";
import { runExec } from "../../attach/run-exec.ts";
import { defineCommand, type CommandInput } from "../../command.ts";
import type { CommandContext } from "../../context.ts";
import { ensureImage, ensureKernel } from "../../imports/ensure-image.ts";
import { parsePairs } from "../../option-values.ts";
import { buildCreateRequest, MACHINE_OPTIONS } from "../vm/vm-spec.ts";

export const run = defineCommand({
  path: ["run"],
  summary: "Run a command in a VM of its own",
  description:
    "Run a command in a VM of its own: gets the image and a guest kernel if they are not here, creates the VM, runs what the image runs (or COMMAND), exits with its code and deletes the VM, also when interrupted.",
  arguments: [
    { name: "<image>", description: "an image of this host, or a source to make one of" },
    { name: "[command...]", description: "replaces the image's command" },
  ],
  options: [
    { flags: "--name <name>", description: "name of the VM (default: made up)" },
    { flags: "-i, --interactive", description: "forward standard input even from a terminal" },
    { flags: "-t, --tty", description: "give it a terminal (by itself when there is one and no command)" },
    { flags: "--entrypoint <program>", description: "replaces the image's entrypoint" },
    { flags: "--keep", description: "leave the VM running" },
    ...MACHINE_OPTIONS,
  ],
  isPassThrough: true,
  examples: [
    "fluxctl run debian:bookworm -- uname -a",
    "fluxctl run -it docker://alpine:3.20",
    "fluxctl run --memory 2G --ttl 1h dev make test",
  ],
  async run(context, input) {
    const image = await ensureImage(context, input.argument(0));
    if (image.kind !== "disk" || input.text("kernel") !== undefined) await ensureKernel(context, input.text("kernel"));
    const name = input.text("name") ?? newId("vm", systemRandom).replace("vm-", "run-");
    let isMine = false;
    try {
      isMine = true;
      await createVm(context, input, { name, image });
      return await runExec(context, planExec(context, input, { name, image }));
    } catch (error) {
      if (isPlatformError(error, "VM_NAME_TAKEN")) isMine = false;
      throw error;
    } finally {
      if (isMine) await dispose(context, name, input.isOn("keep"));
    }
  },
});

interface Target {
  readonly name: string;
  readonly image: ImageView;
}

async function createVm(context: CommandContext, input: CommandInput, target: Target): Promise<void> {
  const client = await context.client();
  // What the image runs is started by us, attached; so not by the guest at boot.
  const { workload: _, ...request } = await buildCreateRequest(target.name, input, []);
  const vm = { ...request, image: target.image.id, workload: { enabled: false } };
  await client.vms.create(vm, { ready: "exec", signal: context.signal });
}

function planExec(context: CommandContext, input: CommandInput, target: Target): Parameters<typeof runExec>[1] {
  const command = input.rest(1);
  const hasTerminal = isTerminal(context.environment);
  const isTty = input.isOn("tty") || (hasTerminal && command.length === 0);
  const hasInput = input.isOn("interactive") || isTty || context.environment.stdin.isTTY !== true;
  return { vm: target.name, request: planProcess(context, input, { image: target.image, command, isTty }), hasInput, isTty };
}

function planProcess(
  context: CommandContext,
  input: CommandInput,
  wish: { readonly image: ImageView; readonly command: readonly string[]; readonly isTty: boolean },
): CreateExecRequest {
  const { config } = wish.image;
  const given = input.text("entrypoint");
  const entrypoint = given === undefined ? (config?.entrypoint ?? []) : given === "" ? [] : [given];
  const defaults = given === undefined ? (config?.cmd ?? []) : [];
  const words = [...entrypoint, ...(wish.command.length > 0 ? wish.command : defaults)];
  const term: Record<string, string> = wish.isTty ? { TERM: context.environment.variables["TERM"] ?? "linux" } : {};
  const env = { ...term, ...parsePairs("image", config?.env ?? []), ...parsePairs("--env", input.texts("env")) };
  const workingDir = input.text("workdir") ?? (config?.working_dir || undefined);
  const user = input.text("user") ?? (config?.user || undefined);
  return {
    command: words.length === 0 ? ["/bin/sh"] : words,
    ...(Object.keys(env).length === 0 ? {} : { env }),
    ...(workingDir === undefined ? {} : { working_dir: workingDir }),
    ...(user === undefined ? {} : { user }),
  };
}

/** Deletes the VM whatever happened, also when its creation was cut short: it may exist all the same. */
async function dispose(context: CommandContext, name: string, isKept: boolean): Promise<void> {
  if (isKept) {
    context.printer.note(`${name} is kept: \`fluxctl vm delete ${name}\` deletes it`);
    return;
  }
  const client = await context.client();
  try {
    await client.vms.delete(name, { signal: context.cleanupSignal() });
  } catch (error) {
    if (isPlatformError(error, "VM_NOT_FOUND")) return;
    context.printer.note(
      `Cannot delete ${name}; \`fluxctl vm delete ${name}\` tries again: ${error instanceof Error ? error.message : ""}`,
    );
  }
}

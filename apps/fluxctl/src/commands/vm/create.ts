import { readFile } from "node:fs/promises";
import { PlatformError } from "@fluxvm/core";
import type { CreateVmRequest } from "@fluxvm/sdk";
import { defineCommand, type CommandInput } from "../../command.ts";
import type { CommandContext } from "../../context.ts";
import { describeVm, VM_PRESENTATION } from "./vm-presentation.ts";
import { buildCreateRequest, CREATE_OPTIONS, MACHINE_OPTIONS } from "./vm-spec.ts";

export const vmCreate = defineCommand({
  path: ["vm", "create"],
  summary: "Create a VM and start it",
  arguments: [
    { name: "<name>", description: "name of the VM, unique on the host" },
    { name: "[command...]", description: "after --: replaces the command the image runs" },
  ],
  options: [
    { flags: "--image <image>", description: "id, name or digest of an image; without one the VM has no disk" },
    ...MACHINE_OPTIONS,
    ...CREATE_OPTIONS,
    { flags: "--spec <file>", description: "the request as JSON (- is standard input); options replace its fields" },
    { flags: "--ready", description: "wait until a first command has run in the guest" },
  ],
  examples: [
    "fluxctl vm create web --image debian:bookworm --memory 1G --ttl 2h --ready",
    "fluxctl vm create db --image docker://postgres:16 --env POSTGRES_PASSWORD=x --forward 5432:5432",
  ],
  async run(context, input) {
    const request = { ...(await readSpec(context, input)), ...(await buildCreateRequest(input.argument(0), input, input.rest(1))) };
    const client = await context.client();
    const ready = input.isOn("ready") ? ("exec" as const) : undefined;
    const vm = await client.vms.create(request, { ready, signal: context.signal });
    context.printer.result(vm, VM_PRESENTATION, describeVm(vm));
    return 0;
  },
});

async function readSpec(context: CommandContext, input: CommandInput): Promise<Partial<CreateVmRequest>> {
  const path = input.text("spec");
  if (path === undefined) return {};
  const text = path === "-" ? String(Buffer.concat(await context.environment.stdin.toArray())) : await readFile(path, "utf8");
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value; // the daemon checks its fields
  } catch (cause) {
    throw new PlatformError("REQUEST_INVALID", `Invalid --spec: ${cause instanceof Error ? cause.message : "not JSON"}`, { cause });
  }
  throw new PlatformError("REQUEST_INVALID", "Invalid --spec: a JSON object is needed");
}

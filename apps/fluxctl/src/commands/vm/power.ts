/** The actions on a VM's power: each takes one or more VMs and does them one after the other. */
import type { Client, StopVmRequest, VmView } from "@fluxvm/sdk";
import { defineCommand, type CommandDefinition, type CommandInput, type OptionDefinition } from "../../command.ts";
import { parseSeconds } from "../../option-values.ts";
import { describeVm, VM_PRESENTATION } from "./vm-presentation.ts";

interface PowerAction {
  readonly verb: string;
  readonly summary: string;
  readonly options?: readonly OptionDefinition[];
  readonly act: (client: Client, vm: string, call: { readonly input: CommandInput; readonly signal: AbortSignal }) => Promise<VmView>;
}

const READY: OptionDefinition = { flags: "--ready", description: "wait until a first command has run in the guest" };
const STOPPING: readonly OptionDefinition[] = [
  { flags: "--timeout <duration>", description: "how long the guest may take before it is killed" },
  { flags: "--force", description: "kill at once" },
];

function definePowerCommand(action: PowerAction): CommandDefinition {
  return defineCommand({
    path: ["vm", action.verb],
    summary: action.summary,
    arguments: [{ name: "<vm...>", description: "ids or names" }],
    ...(action.options === undefined ? {} : { options: action.options }),
    async run(context, input) {
      const client = await context.client();
      for (const reference of input.rest(0)) {
        const vm = await action.act(client, reference, { input, signal: context.signal });
        context.printer.result(vm, VM_PRESENTATION, describeVm(vm));
      }
      return 0;
    },
  });
}

const readiness = (input: CommandInput): "exec" | undefined => (input.isOn("ready") ? "exec" : undefined);

function stopRequest(input: CommandInput): StopVmRequest {
  const timeout = input.text("timeout");
  return {
    ...(timeout === undefined ? {} : { timeout_seconds: parseSeconds("--timeout", timeout) }),
    ...(input.isOn("force") ? { force: true } : {}),
  };
}

export const vmStart = definePowerCommand({
  verb: "start",
  summary: "Start a stopped VM",
  options: [READY],
  act: async (client, vm, { input, signal }) => await client.vms.start(vm, { ready: readiness(input), signal }),
});
export const vmStop = definePowerCommand({
  verb: "stop",
  summary: "Stop a VM: ask the guest first, then kill it",
  options: STOPPING,
  act: async (client, vm, { input, signal }) => await client.vms.stop(vm, stopRequest(input), { signal }),
});
export const vmRestart = definePowerCommand({
  verb: "restart",
  summary: "Stop a VM and start it again",
  options: [...STOPPING, READY],
  act: async (client, vm, { input, signal }) => await client.vms.restart(vm, stopRequest(input), { ready: readiness(input), signal }),
});
export const vmPause = definePowerCommand({
  verb: "pause",
  summary: "Hold a running VM where it is",
  act: async (client, vm, { signal }) => await client.vms.pause(vm, { signal }),
});
export const vmResume = definePowerCommand({
  verb: "resume",
  summary: "Let a paused VM go on",
  act: async (client, vm, { signal }) => await client.vms.resume(vm, { signal }),
});

import { VM_STATES } from "@fluxvm/contracts";
import { PlatformError } from "@fluxvm/core";
import type { WaitTarget } from "@fluxvm/sdk";
import { defineCommand } from "../../command.ts";
import { parseSeconds } from "../../option-values.ts";
import { describeVm, VM_PRESENTATION } from "./vm-presentation.ts";

const TARGETS: readonly WaitTarget[] = [...VM_STATES, "ready", "gone"];

export const vmWait = defineCommand({
  path: ["vm", "wait"],
  summary: "Wait until a VM is in a state",
  arguments: [{ name: "<vm>", description: "id or name" }],
  options: [
    { flags: "--for <states>", description: `comma-separated: ${TARGETS.join(", ")} (default: ready)` },
    { flags: "--timeout <duration>", description: "give up after this long (default: 2m)" },
  ],
  examples: ["fluxctl vm wait web --for ready --timeout 1m", "fluxctl vm wait web --for stopped,failed,gone"],
  async run(context, input) {
    const states = (input.text("for") ?? "ready").split(",").map((word) => parseTarget(word));
    const timeoutSeconds = parseSeconds("--timeout", input.text("timeout") ?? "2m");
    const client = await context.client();
    const vm = await client.vms.wait(input.argument(0), states, { timeoutSeconds, signal: context.signal });
    if (vm === undefined) context.printer.done(`${input.argument(0)} is gone`, { name: input.argument(0), gone: true });
    else context.printer.result(vm, VM_PRESENTATION, describeVm(vm));
    return 0;
  },
});

function parseTarget(word: string): WaitTarget {
  const target = TARGETS.find((name) => name === word);
  if (target === undefined)
    throw new PlatformError("REQUEST_INVALID", `Invalid --for: ${JSON.stringify(word)} is none of ${TARGETS.join(", ")}`);
  return target;
}

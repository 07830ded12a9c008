/** One try at taking over a VM's machine after a daemon restart. */
import { withDeadline, type CallOptions } from "@fluxvm/core";
import type { VmProcess } from "@fluxvm/vmm";
import type { SeenMachine } from "./adoption-plan.ts";
import type { EnginePorts } from "./ports.ts";
import type { VmRecord } from "./vm-record.ts";

const ADOPT_TIMEOUT_MS = 10_000;

export interface AdoptedMachine {
  readonly process: VmProcess | undefined;
  readonly seen: SeenMachine;
}

/** `gone` without a recorded process or when it ended. @throws when the machine is there and does not answer. */
export async function attemptAdoption(
  record: VmRecord,
  ports: Pick<EnginePorts, "backends" | "clock">,
  options: CallOptions,
): Promise<AdoptedMachine> {
  const recorded = "process" in record.state ? record.state.process : undefined;
  const backend = ports.backends.get(record.backend);
  if (recorded === undefined || backend === undefined) return { process: undefined, seen: "gone" };
  return await withDeadline(
    { clock: ports.clock, timeoutMs: ADOPT_TIMEOUT_MS, signal: options.signal, what: `adopting ${record.id}` },
    async (signal) => {
      const process = await backend.adopt(recorded, { signal });
      return process === undefined ? { process, seen: "gone" as const } : { process, seen: await process.status({ signal }) };
    },
  );
}

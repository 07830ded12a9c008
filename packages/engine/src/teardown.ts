/**
 * Taking away what a VM has on the host. Nothing is remembered about what was made: every step finds its things by
 * listing or by name and is content when there are none. So deletion, a creation that failed and the pass after a
 * crash are the same code, and any of it can be cut off and run again.
 *
 * Order: the process first, since it uses all the rest; then the rules about its user id; then its files.
 */
import { withDeadline, type CallOptions } from "@fluxvm/core";
import type { VmProcess } from "@fluxvm/vmm";
import type { EnginePorts } from "./ports.ts";
import type { VmRecord } from "./vm-record.ts";

/** One try of a whole teardown. */
const TEARDOWN_TIMEOUT_MS = 60_000;
/** Ending one VM's process, and any other single step of cleaning up. */
export const CLEANUP_TIMEOUT_MS = 15_000;

type TeardownPorts = Pick<EnginePorts, "backends" | "clock" | "egress" | "host" | "logger" | "workspaces">;

/** Ends every process of the VM, found by listing; `process` is tried first when its handle is at hand. */
export async function endProcesses(
  vmId: string,
  process: VmProcess | undefined,
  ports: TeardownPorts,
  options: CallOptions,
): Promise<void> {
  if (process !== undefined) {
    try {
      await withDeadline(
        { clock: ports.clock, timeoutMs: CLEANUP_TIMEOUT_MS, signal: options.signal, what: "ending the VMM" },
        async (signal) => await process.kill({ signal }),
      );
    } catch (error) {
      options.signal.throwIfAborted();
      ports.logger.warn({ vmId, err: error }, "vmm did not end by its handle"); // the listing below finds it
    }
  }
  for (const backend of ports.backends.values()) {
    await withDeadline(
      { clock: ports.clock, timeoutMs: CLEANUP_TIMEOUT_MS, signal: options.signal, what: "ending processes found" },
      async (signal) => {
        const found = await backend.list(ports.host.instanceId, { signal });
        for (const one of found.filter((f) => f.vmId === vmId)) await backend.destroyFound(one, { signal });
      },
    );
  }
}

/** Leaves nothing of the VM on the host. @throws what the first step that failed threw. */
export async function tearDown(
  record: Pick<VmRecord, "id" | "owner">,
  process: VmProcess | undefined,
  ports: TeardownPorts,
  options: CallOptions,
): Promise<void> {
  await withDeadline(
    { clock: ports.clock, timeoutMs: TEARDOWN_TIMEOUT_MS, signal: options.signal, what: `removing ${record.id}` },
    async (signal) => {
      await endProcesses(record.id, process, ports, { signal });
      await ports.egress.remove({ vmId: record.id, uid: record.owner.uid }, { signal });
      await ports.workspaces.remove(record.id, { signal });
    },
  );
}

/**
 * Removes what belongs to this instance and to no record: after a crash, or when an earlier pass failed. Keeps the
 * processes that records speak of and ends all others of the same VMs. Goes on when a step fails; the next start
 * tries again.
 */
export async function removeLeftovers(records: ReadonlyMap<string, VmRecord>, ports: TeardownPorts, options: CallOptions): Promise<void> {
  const attempt = async (what: string, vmId: string | undefined, work: (signal: AbortSignal) => Promise<void>): Promise<void> => {
    try {
      await withDeadline({ clock: ports.clock, timeoutMs: CLEANUP_TIMEOUT_MS, signal: options.signal, what }, work);
      if (vmId !== undefined) ports.logger.info({ vmId, what }, "leftover removed");
    } catch (error) {
      options.signal.throwIfAborted();
      ports.logger.error({ vmId, what, err: error }, "leftover could not be removed");
    }
  };
  for (const backend of ports.backends.values()) {
    await attempt("listing processes", undefined, async (listing) => {
      for (const found of await backend.list(ports.host.instanceId, { signal: listing })) {
        if (isRecorded(records.get(found.vmId), found)) continue;
        await attempt("process", found.vmId, async (signal) => await backend.destroyFound(found, { signal }));
      }
    });
  }
  await attempt("listing egress rules", undefined, async (listing) => {
    for (const rule of await ports.egress.list({ signal: listing })) {
      if (!records.has(rule.vmId)) await attempt("egress rule", rule.vmId, async (signal) => await ports.egress.remove(rule, { signal }));
    }
  });
  await attempt("listing workspaces", undefined, async (listing) => {
    for (const vmId of await ports.workspaces.list({ signal: listing })) {
      if (!records.has(vmId)) await attempt("workspace", vmId, async (signal) => await ports.workspaces.remove(vmId, { signal }));
    }
  });
}

function isRecorded(record: VmRecord | undefined, found: { readonly pid: number; readonly startTimeTicks: number }): boolean {
  const process = record !== undefined && "process" in record.state ? record.state.process : undefined;
  return process !== undefined && process.pid === found.pid && process.startTimeTicks === found.startTimeTicks;
}

/** `?ready=exec`: waiting until a first command has run in the guest, and where the time went. */
import { PlatformError, withDeadline, type CallOptions, type Clock } from "@fluxvm/core";
import { describeState, DONE, PENDING, toVisiblePhase, type GuestAgent, type VmDriver, type VmSnapshot } from "@fluxvm/engine";

export interface ReadyPhases {
  readonly first_command_ms: number;
  readonly phases: { readonly create_done_ms: number; readonly agent_wait_ms: number; readonly first_exec_ms: number };
}

/** @throws PlatformError `AGENT_DISABLED` */
export function requireAgent(agentEnabled: boolean, name: string): void {
  if (!agentEnabled) throw new PlatformError("AGENT_DISABLED", `Cannot wait until VM "${name}" is ready: it has no guest agent`);
}

/** @throws PlatformError `WAIT_TIMEOUT`, `VM_EXITED`, whatever the first command failed with. The VM goes on in each case. */
export async function waitForFirstCommand(
  driver: VmDriver,
  times: { readonly requestedAtMs: number; readonly clock: Clock; readonly timeoutMs: number },
  options: CallOptions,
): Promise<ReadyPhases> {
  const { clock, requestedAtMs, timeoutMs } = times;
  const createdAtMs = clock.bootMs();
  const { name } = driver.snapshot.record;
  let answeredAtMs = createdAtMs;
  await withDeadline(
    { clock, timeoutMs, signal: options.signal, code: "WAIT_TIMEOUT", what: `waiting for a first command in VM "${name}"` },
    async (signal) => {
      await whileRunning(driver, signal, async (inner) => {
        const agent = driver.requireGuest();
        await agent.waitReady({ signal: inner });
        answeredAtMs = clock.bootMs();
        await runTrue(agent, { signal: inner });
      });
    },
  );
  const doneAtMs = clock.bootMs();
  return {
    first_command_ms: doneAtMs - requestedAtMs,
    phases: {
      create_done_ms: createdAtMs - requestedAtMs,
      agent_wait_ms: answeredAtMs - createdAtMs,
      first_exec_ms: doneAtMs - answeredAtMs,
    },
  };
}

/** Runs `work` and gives it up when the VM leaves `running`. */
async function whileRunning(driver: VmDriver, signal: AbortSignal, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const controller = new AbortController();
  const both = AbortSignal.any([signal, controller.signal]);
  const left = driver.waitUntil((snapshot) => (isRunning(snapshot) ? PENDING : DONE), { signal: both });
  try {
    await Promise.race([left, work(both)]);
  } catch (error) {
    if (isRunning(driver.snapshot)) throw error; // else what follows says it better
  } finally {
    controller.abort();
    left.catch(() => undefined); // settled by the abort, or already raced
  }
  const { record, state } = driver.snapshot;
  if (isRunning(driver.snapshot)) return;
  const why = describeState(state).message ?? `VM is ${toVisiblePhase(state)}`;
  throw new PlatformError("VM_EXITED", `VM "${record.name}" did not come to its first command: ${why}`);
}

function isRunning(snapshot: VmSnapshot): boolean {
  return toVisiblePhase(snapshot.state) === "running";
}

/** The first command: `true`, whose success says that the guest runs programs. */
async function runTrue(agent: GuestAgent, options: CallOptions): Promise<void> {
  const exec = await agent.createExec({ command: ["true"] }, options);
  const stream = await agent.attachExec(exec.id, { stdout: 0, stderr: 0 }, options);
  try {
    for await (const event of stream.output) {
      if (event.kind !== "exit") continue;
      if (event.exit.code !== 0) throw new PlatformError("EXEC_START_FAILED", "The first command in the guest failed: true");
      break;
    }
  } finally {
    stream.detach();
  }
  await agent.removeExec(exec.id, options);
}

/**
 * What the driver does to the world: one function per effect. Each gets all it needs, settles soon after its signal
 * fires, never throws for operating errors and answers with an outcome for the state machine. None touches the
 * driver's state.
 */
import { assertNever, computeBackoffMs, PlatformError, toPlatformError, withDeadline, type DeadlineOptions } from "@fluxvm/core";
import type { DiskPlan, VmExit, VmProcess } from "@fluxvm/vmm";
import type { GuestAgent } from "./guest-agent.ts";
import { attemptAdoption, type AdoptedMachine } from "./adopt-process.ts";
import type { SeenMachine } from "./adoption-plan.ts";
import type { EnginePorts } from "./ports.ts";
import { prepareAndLaunch } from "./prepare.ts";
import { endProcesses, tearDown } from "./teardown.ts";
import { planRemoval, type VmRecord } from "./vm-record.ts";
import type { VmEffect, VmOutcome, VmState } from "./vm-state.ts";

export interface EffectContext {
  readonly ports: EnginePorts;
  readonly record: VmRecord;
  readonly state: VmState;
  readonly process: VmProcess | undefined;
  readonly agent: GuestAgent | undefined;
}

export interface EffectResult {
  readonly outcome: VmOutcome;
  /** Newly launched or taken over. */
  readonly process?: VmProcess | undefined;
  readonly rootDisk?: DiskPlan | undefined;
  /** Why it failed, for whoever asked. */
  readonly error?: PlatformError | undefined;
}

const PAUSE_TIMEOUT_MS = 30_000;
const SHUTDOWN_ASK_TIMEOUT_MS = 5_000;
/** Setting a resumed guest's clock may not hold up the resume for longer. */
const CLOCK_SET_TIMEOUT_MS = 5_000;
/** Every step of a release has a deadline of its own; a launch that is not over by then is on its own. */
const WIND_UP_TIMEOUT_MS = 60_000;
const STATUS_TIMEOUT_MS = 5_000;
const FIRST_RETRY_MS = 200;
const MAX_RETRY_MS = 30_000;

export async function runEffect(
  effect: Exclude<VmEffect, "none"> | "abandon",
  context: EffectContext,
  signal: AbortSignal,
): Promise<EffectResult> {
  switch (effect) {
    case "launch":
      return await launch(context, signal);
    case "boot":
      return await boot(context, signal);
    case "pause":
      return await pause(context, signal);
    case "resume":
      return await resume(context, signal);
    case "end":
      return await end(context, signal);
    case "teardown":
      return await teardown(context, signal);
    case "adopt":
      return await adopt(context, signal);
    case "abandon":
      return await abandon(context, signal);
    default:
      return assertNever(effect);
  }
}

async function launch(context: EffectContext, signal: AbortSignal): Promise<EffectResult> {
  const { ports, record } = context;
  try {
    const launched = await ports.launchSlots.run(signal, async () => {
      const deadline = { clock: ports.clock, timeoutMs: ports.config.launchTimeoutMs, signal, what: `launching VM "${record.name}"` };
      return await withPatience(deadline, async (inner) => await prepareAndLaunch(record, ports, inner));
    });
    return { outcome: { kind: "launched", process: launched.process.record }, process: launched.process, rootDisk: launched.rootDisk };
  } catch (thrown) {
    const error = toPlatformError(thrown);
    return { outcome: { kind: "launch_failed", reason: "launch_failed", message: error.message, atWallMs: ports.clock.wallMs() }, error };
  }
}

/**
 * A deadline that, once over or cut off, still waits a while for the work to wind up: what a launch in flight makes
 * must be there, or be released, before anybody looks for leftovers.
 */
async function withPatience<T>(deadline: DeadlineOptions, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  let running: Promise<unknown> = Promise.resolve();
  try {
    return await withDeadline(deadline, async (signal) => {
      const result = work(signal);
      running = result;
      return await result;
    });
  } catch (error) {
    const patience = { clock: deadline.clock, timeoutMs: WIND_UP_TIMEOUT_MS, what: "winding up" };
    await withDeadline(patience, async () => await running).catch(() => undefined); // its own error is known, or it takes too long
    throw error;
  }
}

/** After a launch whose record could not be stored: the machine must not run. */
async function abandon(context: EffectContext, signal: AbortSignal): Promise<EffectResult> {
  const { ports, record, process } = context;
  await retryUntilDone(context, "ending the VMM", signal, async () => await endProcesses(record.id, process, ports, { signal }));
  const message = "The VM's record could not be stored";
  return { outcome: { kind: "launch_failed", reason: "launch_failed", message, atWallMs: ports.clock.wallMs() } };
}

async function boot(context: EffectContext, signal: AbortSignal): Promise<EffectResult> {
  const { clock, config } = context.ports;
  return await withProcess(
    context,
    signal,
    (message) => ({ kind: "boot_failed", reason: "launch_failed", message }),
    async (process) => {
      await withDeadline(
        { clock, timeoutMs: config.launchTimeoutMs, signal, what: `booting VM "${context.record.name}"` },
        async (inner) => await process.boot({ signal: inner }),
      );
      return { kind: "booted" };
    },
  );
}

async function pause(context: EffectContext, signal: AbortSignal): Promise<EffectResult> {
  const { clock } = context.ports;
  return await withProcess(
    context,
    signal,
    (_, seen) => (seen === "paused" ? { kind: "paused" } : { kind: "pause_failed", seen }),
    async (process) => {
      await withDeadline(
        { clock, timeoutMs: PAUSE_TIMEOUT_MS, signal, what: `pausing VM "${context.record.name}"` },
        async (inner) => await process.pause({ signal: inner }),
      );
      return { kind: "paused" };
    },
  );
}

async function resume(context: EffectContext, signal: AbortSignal): Promise<EffectResult> {
  const { clock } = context.ports;
  return await withProcess(
    context,
    signal,
    (_, seen) => (seen === "running" ? { kind: "resumed" } : { kind: "resume_failed", seen }),
    async (process) => {
      await withDeadline(
        { clock, timeoutMs: PAUSE_TIMEOUT_MS, signal, what: `resuming VM "${context.record.name}"` },
        async (inner) => await process.resume({ signal: inner }),
      );
      await setGuestClock(context, signal);
      return { kind: "resumed" };
    },
  );
}

/** A guest stood still while time went on. Done before the VM counts as running, so before any call reaches the guest. */
async function setGuestClock(context: EffectContext, signal: AbortSignal): Promise<void> {
  const { agent, ports, record } = context;
  if (agent === undefined || agent.version === undefined) return; // never answered: it sets its clock when it starts
  try {
    await withDeadline(
      { clock: ports.clock, timeoutMs: CLOCK_SET_TIMEOUT_MS, signal, what: "setting the guest's clock" },
      async (inner) => {
        await agent.waitReady({ signal: inner });
        await agent.setClock({ wallMs: ports.clock.wallMs() }, { signal: inner });
      },
    );
  } catch (error) {
    signal.throwIfAborted();
    ports.logger.warn({ vmId: record.id, err: error }, "guest clock not set after resume");
  }
}

/** Ends the machine: asks the guest, waits, kills. Comes back only when no process of the VM is left. */
async function end(context: EffectContext, signal: AbortSignal): Promise<EffectResult> {
  const { ports, record, process, state } = context;
  const grace = state.phase === "stopping" && !state.force ? state.graceMs : 0;
  const exit = process === undefined || grace === 0 ? undefined : await shutDown(context, process, grace, signal);
  await retryUntilDone(context, "ending the VMM", signal, async () => await endProcesses(record.id, process, ports, { signal }));
  const killed: VmExit = { reason: "killed", message: "Killed by request" };
  return { outcome: { kind: "ended", exit: exit ?? killed, atWallMs: ports.clock.wallMs() } };
}

/** How the machine ended, or `undefined` when the time was over. */
async function shutDown(context: EffectContext, process: VmProcess, graceMs: number, signal: AbortSignal): Promise<VmExit | undefined> {
  const { ports, record } = context;
  try {
    return await withDeadline(
      { clock: ports.clock, timeoutMs: graceMs, signal, what: "waiting for the guest to shut down" },
      async (inner) => {
        await askToShutDown(context, process, inner);
        return await process.exited;
      },
    );
  } catch (error) {
    signal.throwIfAborted();
    ports.logger.debug({ vmId: record.id, err: error }, "graceful stop gave up");
    return undefined;
  }
}

async function askToShutDown(context: EffectContext, process: VmProcess, signal: AbortSignal): Promise<void> {
  const { agent, ports } = context;
  const ask = async (what: string, work: (inner: AbortSignal) => Promise<void>): Promise<boolean> => {
    try {
      await withDeadline({ clock: ports.clock, timeoutMs: SHUTDOWN_ASK_TIMEOUT_MS, signal, what }, work);
      return true;
    } catch (error) {
      signal.throwIfAborted();
      ports.logger.debug({ vmId: context.record.id, what, err: error }, "shutdown request failed");
      return false;
    }
  };
  // A paused guest hears nothing.
  await ask("resuming", async (inner) => {
    if ((await process.status({ signal: inner })) === "paused") await process.resume({ signal: inner });
  });
  const askAgent = async (): Promise<boolean> =>
    agent !== undefined && (await ask("agent shutdown", async (inner) => await agent.shutdown({ signal: inner })));
  if (agent?.state === "ready" && (await askAgent())) return;
  await ask("power button", async (inner) => await process.requestShutdown({ signal: inner }));
  // A guest that is still starting hears no button, and many have nobody who listens to it.
  if (agent !== undefined && (await becomesReady(agent, process, signal))) await askAgent();
}

/** Whether the agent answers before the machine ends. @throws the signal's reason */
async function becomesReady(agent: GuestAgent, process: VmProcess, signal: AbortSignal): Promise<boolean> {
  const ended = new AbortController();
  void process.exited.then(() => ended.abort()); // never rejects
  try {
    await agent.waitReady({ signal: AbortSignal.any([signal, ended.signal]) });
    return true;
  } catch {
    signal.throwIfAborted();
    return false;
  }
}

/** Tears down and removes the record, trying again until it is done: a VM being deleted never comes back. */
async function teardown(context: EffectContext, signal: AbortSignal): Promise<EffectResult> {
  const { ports, record, process, agent, state } = context;
  await agent?.close().catch((error: unknown) => ports.logger.debug({ vmId: record.id, err: error }, "agent close failed"));
  await retryUntilDone(context, "teardown", signal, async () => await tearDown(record, process, ports, { signal }));
  const reason = state.phase === "deleting" ? state.reason : "requested";
  // In memory the leases go at once, which is right: nothing of the VM reads the image any more.
  const changes = [planRemoval(record), ...ports.artifacts.release(record.id)];
  const wallMs = ports.clock.wallMs();
  const event = {
    kind: "event",
    type: "vm.gone",
    subject: record.id,
    wallMs,
    data: { from: "deleting", to: "gone", reason, name: record.name },
  } as const;
  await retryUntilDone(context, "removing the record", signal, async () => await ports.store.commit([...changes, event]));
  return { outcome: { kind: "removed" } };
}

/** Asks again and again what a machine does: one that did not answer when the daemon started, or after a call failed. */
async function adopt(context: EffectContext, signal: AbortSignal): Promise<EffectResult> {
  const { ports, record } = context;
  let found: AdoptedMachine = { process: context.process, seen: "unknown" };
  await retryUntilDone(context, "asking the VMM for its state", signal, async () => {
    found =
      found.process === undefined
        ? await attemptAdoption(record, ports, { signal })
        : { process: found.process, seen: await seeMachine(context, found.process, signal) };
    if (found.seen === "unknown") throw new PlatformError("BACKEND_PROTOCOL", "The VMM does not answer");
  });
  const { process, seen } = found;
  if (process === undefined) {
    return { outcome: { kind: "ended", exit: { reason: "unknown", message: "The VMM's process ended" }, atWallMs: ports.clock.wallMs() } };
  }
  // One that ended says so itself, by its `exited`.
  return {
    outcome: { kind: "adopted", seen: seen === "prelaunch" || seen === "paused" ? seen : "running" },
    process: process === context.process ? undefined : process,
  };
}

/** Runs `work` on the machine, taking it over first if that is still to be done. */
async function withProcess(
  context: EffectContext,
  signal: AbortSignal,
  failed: (message: string, seen: SeenMachine) => VmOutcome,
  work: (process: VmProcess) => Promise<VmOutcome>,
): Promise<EffectResult> {
  let adopted: VmProcess | undefined;
  try {
    if (context.process !== undefined) return { outcome: await work(context.process) };
    adopted = (await attemptAdoption(context.record, context.ports, { signal })).process;
    if (adopted === undefined) throw new PlatformError("VM_EXITED", `VM "${context.record.name}" has ended`);
    return { outcome: await work(adopted), process: adopted };
  } catch (thrown) {
    const error = toPlatformError(thrown);
    const outcome = failed(error.message, await seeMachine(context, context.process ?? adopted, signal));
    return { outcome, process: adopted, error };
  }
}

/** What became of a machine whose call failed: the call may have taken effect all the same. */
async function seeMachine(context: EffectContext, process: VmProcess | undefined, signal: AbortSignal): Promise<SeenMachine> {
  if (process === undefined) return "unknown";
  try {
    const deadline = { clock: context.ports.clock, timeoutMs: STATUS_TIMEOUT_MS, signal, what: "asking the VMM for its state" };
    return await withDeadline(deadline, async (inner) => await process.status({ signal: inner }));
  } catch {
    return "unknown"; // why the call failed is what counts, and is logged or told
  }
}

/** Tries until it works or the signal fires. Every failure is logged; the delay grows to half a minute. */
async function retryUntilDone(context: EffectContext, what: string, signal: AbortSignal, work: () => Promise<void>): Promise<void> {
  const { clock, logger, random } = context.ports;
  for (let attempt = 1; ; attempt += 1) {
    try {
      await work();
      return;
    } catch (error) {
      signal.throwIfAborted();
      const delayMs = computeBackoffMs(Math.min(attempt, 16), { firstDelayMs: FIRST_RETRY_MS, maxDelayMs: MAX_RETRY_MS, random });
      logger.error({ vmId: context.record.id, what, attempt, delayMs, err: error }, "failed, will try again");
      await clock.sleep(delayMs, { signal });
    }
  }
}

/** A `HostHelper` without processes: launches are recorded, and the test says when and how a process ends. */
import { PlatformError, type CallOptions } from "@fluxvm/core";
import type { HostHelper, HostProcess } from "../helper/host-helper.ts";
import { isSameProcess, type ProcessExit, type ProcessIdentity, type ProcessSpec } from "../process/process-spec.ts";

export interface FakeProcess extends HostProcess {
  readonly spec: ProcessSpec;
  readonly signals: readonly string[];
  end(exit: ProcessExit): void;
}

export interface FakeHostHelper extends HostHelper {
  /** In order of launch, ended ones included. */
  readonly processes: readonly FakeProcess[];
  /** The next launch fails with this. */
  failNextLaunch(error: Error): void;
  /** What a process does at a signal; default: SIGKILL and SIGTERM end it. */
  onSignal: (process: FakeProcess, signal: string) => void;
}

export const FAKE_BOOT_ID = "00000000-0000-4000-8000-000000000000";
const FIRST_PID = 1000;

export function createFakeHostHelper(): FakeHostHelper {
  const processes: FakeProcess[] = [];
  const ended = new Set<FakeProcess>();
  let nextFailure: Error | undefined;
  const fake: FakeHostHelper = {
    processes,
    failNextLaunch: (error) => {
      nextFailure = error;
    },
    onSignal: (process, signal) => {
      if (signal === "SIGKILL" || signal === "SIGTERM") process.end({ signal });
    },
    async launchProcess(spec: ProcessSpec, { signal }: CallOptions) {
      signal.throwIfAborted();
      const failure = nextFailure;
      nextFailure = undefined;
      if (failure !== undefined) throw failure;
      const process = createFakeProcess(spec, FIRST_PID + processes.length, { ended, deliver: (p, name) => fake.onSignal(p, name) });
      processes.push(process);
      return process;
    },
    async adoptProcess(identity: ProcessIdentity, { signal }: CallOptions) {
      signal.throwIfAborted();
      return processes.find((p) => isSameProcess(p.identity, identity) && !ended.has(p));
    },
    ...unsupportedCalls(),
  };
  return fake;
}

function createFakeProcess(
  spec: ProcessSpec,
  pid: number,
  world: { readonly ended: Set<FakeProcess>; deliver(process: FakeProcess, signal: string): void },
): FakeProcess {
  const exit = Promise.withResolvers<ProcessExit>();
  const signals: string[] = [];
  const process: FakeProcess = {
    spec,
    signals,
    identity: { pid, startTimeTicks: pid * 10, bootId: FAKE_BOOT_ID, pidNamespaceInode: 1 },
    exited: exit.promise,
    skipped: [],
    end: (how) => {
      world.ended.add(process);
      exit.resolve(how);
    },
    signal: async (name) => {
      if (world.ended.has(process)) return false;
      signals.push(name);
      world.deliver(process, name);
      return true;
    },
    kill: async (options) => {
      await process.signal("SIGKILL", options);
      return await exit.promise;
    },
  };
  return process;
}

/** Cgroups are empty here; file work has no file system to work on. */
function unsupportedCalls(): Omit<HostHelper, "launchProcess" | "adoptProcess"> {
  const refuse = async (): Promise<never> => {
    throw new PlatformError("HOST_CAPABILITY_MISSING", "Not in the fake host");
  };
  return {
    killCgroup: async () => undefined,
    notifyServiceManager: async () => undefined,
    close: async () => undefined,
    sparseCopy: refuse,
    reflink: refuse,
    punchHole: refuse,
    getXattr: refuse,
    setXattr: refuse,
    openVsockBridge: refuse,
    closeVsockBridge: refuse,
  };
}

/** The `HostHelper` that speaks to `fluxvm-host-helper serve`: typed calls, deadlines, and failures as `PlatformError`. */
import { abortable, PlatformError, type CallOptions, type Clock } from "@fluxvm/core";
import type { Logger } from "@fluxvm/telemetry";
import type { ProcessExit, ProcessIdentity, ProcessSpec, SignalName } from "../process/process-spec.ts";
import { HelperFailureError, type HelperFailure } from "./connection.ts";
import type { CopyRequest, HostHelper, HostProcess } from "./host-helper.ts";
import { HelperSupervisor } from "./supervisor.ts";

const QUICK_MS = 5000;
const KILL_MS = 10_000;
const COPY_MS = 30 * 60_000;
/** Not made again by themselves when the helper dies on the way: the second try would find the first one's work. */
const ONCE: ReadonlySet<string> = new Set(["sparse_copy", "reflink", "vsock_bridge", "vsock_bridge_close", "notify"]);

export interface HostHelperOptions {
  readonly binaryPath: string;
  readonly logger: Logger;
  readonly clock: Clock;
  /** Of `acquireStateLock`: the helper holds the lock as long as it lives, too. */
  readonly lockFd?: number | undefined;
  readonly onRestart?: (() => void) | undefined;
}

/** @throws PlatformError `HOST_HELPER_UNAVAILABLE` when it cannot be started. */
export async function startHostHelper(options: HostHelperOptions): Promise<HostHelper & { readonly pid: number | undefined }> {
  const supervisor = new HelperSupervisor(options);
  await supervisor.start();
  return new SupervisedHelper(supervisor);
}

/** The step and errno go to the log; the message names what failed in words. */
export function toHostError(failure: HelperFailure, what: string): PlatformError {
  const options = { details: { ...failure } };
  const message = `Cannot ${what}: ${failure.message}`;
  switch (failure.kind) {
    case "invalid":
    case "unknown_op":
      return new PlatformError("REQUEST_INVALID", message, options);
    case "busy":
      return new PlatformError("QUEUE_FULL", message, { ...options, retryAfterMs: 200 });
    case "deadline":
      return new PlatformError("DEADLINE_EXCEEDED", message, options);
    case "stale":
      return new PlatformError("HOST_TOOL_FAILED", message, options);
    case "system":
      return systemError(failure, message, options);
  }
}

function systemError(failure: HelperFailure, message: string, options: { readonly details: Record<string, unknown> }): PlatformError {
  if (failure.step === "exec" && failure.code === "ENOENT") return new PlatformError("HOST_TOOL_MISSING", message, options);
  if (failure.code === "ENOSPC" || failure.code === "EDQUOT") return new PlatformError("HOST_OUT_OF_SPACE", message, options);
  if (failure.code === "EOPNOTSUPP" || failure.code === "EXDEV") return new PlatformError("HOST_CAPABILITY_MISSING", message, options);
  return new PlatformError("HOST_TOOL_FAILED", message, options);
}

class SupervisedHelper implements HostHelper {
  readonly #supervisor: HelperSupervisor;

  constructor(supervisor: HelperSupervisor) {
    this.#supervisor = supervisor;
  }

  /** For tests and the log. */
  get pid(): number | undefined {
    return this.#supervisor.pid;
  }

  async launchProcess(spec: ProcessSpec, options: CallOptions): Promise<HostProcess> {
    options.signal.throwIfAborted();
    const watchId = this.#supervisor.newWatchId();
    const answer = this.#supervisor.requestToEnd("spawn", { spec, watchId }, options).then((reply) => {
      const spawned = reply as { identity: ProcessIdentity; skipped: string[] }; // shape of spawn.rs
      const exited = this.#supervisor.follow(watchId, spawned.identity);
      return this.#process(spawned.identity, exited, spawned.skipped);
    });
    try {
      return await abortable(answer, options.signal);
    } catch (error) {
      if (options.signal.aborted) this.#abandon(answer);
      throw translate(error, `start ${spec.argv[0] ?? "nothing"}`);
    }
  }

  async adoptProcess(identity: ProcessIdentity, options: CallOptions): Promise<HostProcess | undefined> {
    const watchId = this.#supervisor.newWatchId();
    try {
      await this.#supervisor.request("watch", { identity, watchId }, { ...options, timeoutMs: QUICK_MS, repeatable: true });
    } catch (error) {
      if (error instanceof HelperFailureError && error.failure.kind === "stale") return undefined;
      throw translate(error, `adopt process ${identity.pid}`);
    }
    const exited = this.#supervisor.follow(watchId, identity);
    const { alive } = (await this.#call("alive", { identity }, options)) as { alive: boolean }; // shape of serve.rs
    return alive ? this.#process(identity, exited, []) : undefined;
  }

  async killCgroup(dir: string, options: CallOptions): Promise<void> {
    await this.#call("kill_cgroup", { dir, timeoutMs: KILL_MS }, options, KILL_MS + QUICK_MS);
  }

  async sparseCopy(request: CopyRequest, options: CallOptions): Promise<number> {
    const { dataBytes } = (await this.#call("sparse_copy", request, options, COPY_MS)) as { dataBytes: number }; // shape of serve.rs
    return dataBytes;
  }

  async reflink(request: CopyRequest, options: CallOptions): Promise<void> {
    await this.#call("reflink", request, options);
  }

  async punchHole(
    request: { readonly path: string; readonly offset: number; readonly length: number },
    options: CallOptions,
  ): Promise<void> {
    await this.#call("punch", request, options);
  }

  async getXattr(path: string, name: string, options: CallOptions): Promise<Buffer | undefined> {
    const { value } = (await this.#call("get_xattr", { path, name }, options)) as { value: number[] | null }; // shape of serve.rs
    return value === null ? undefined : Buffer.from(value);
  }

  async setXattr(path: string, name: string, value: Uint8Array, options: CallOptions): Promise<void> {
    await this.#call("set_xattr", { path, name, value: [...value] }, options);
  }

  async notifyServiceManager(socket: string, state: string, options: CallOptions): Promise<void> {
    await this.#call("notify", { socket, state }, options);
  }

  async openVsockBridge(
    request: { readonly cid: number; readonly port: number; readonly path: string },
    options: CallOptions,
  ): Promise<void> {
    await this.#call("vsock_bridge", request, options);
  }

  async closeVsockBridge(path: string, options: CallOptions): Promise<void> {
    await this.#call("vsock_bridge_close", { path }, options);
  }

  async close(): Promise<void> {
    await this.#supervisor.close();
  }

  async #call(op: string, params: unknown, options: CallOptions, timeoutMs = QUICK_MS): Promise<unknown> {
    try {
      return await this.#supervisor.request(op, params, { ...options, timeoutMs, repeatable: !ONCE.has(op) });
    } catch (error) {
      throw translate(error, op.replaceAll("_", " "));
    }
  }

  #process(identity: ProcessIdentity, exited: Promise<ProcessExit>, skipped: readonly string[]): HostProcess {
    const signal = async (name: SignalName, options: CallOptions): Promise<boolean> => {
      try {
        await this.#supervisor.request("signal", { identity, signal: name }, { ...options, timeoutMs: QUICK_MS, repeatable: true });
        return true;
      } catch (error) {
        if (error instanceof HelperFailureError && error.failure.kind === "stale") return false;
        throw translate(error, `signal process ${identity.pid}`);
      }
    };
    const kill = async (options: CallOptions): Promise<ProcessExit> => {
      await signal("SIGKILL", options);
      return await abortable(exited, options.signal);
    };
    return { identity, exited, skipped, signal, kill };
  }

  /** The caller gave up: a process that starts all the same is killed. */
  #abandon(answer: Promise<HostProcess>): void {
    const late = answer.then((process) => process.kill({ signal: AbortSignal.timeout(KILL_MS) }));
    late.catch(() => undefined); // it never started, or the cgroup's cleaning finds it
  }
}

function translate(error: unknown, what: string): unknown {
  return error instanceof HelperFailureError ? toHostError(error.failure, what) : error;
}

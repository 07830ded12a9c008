/**
 * One QEMU process as a `VmProcess`.
 *
 *   alive --guest ends (event or status)--> ending --quit, else SIGKILL--> gone
 *     \------------------- the process ends -----------------------------> gone
 *
 * Invariants: `exited` settles exactly once, after the process is gone and what it held (cgroup, sockets) is released.
 * There is at most one control connection and one attempt to make one; while the process lives and the connection is
 * lost, a loop makes a new one and reads the status, so no end is missed. What the guest did first is why it ended.
 * A full disk of the host holds the guest inside a write (QEMU's `io-error`): it counts as running, and is told to go
 * on every few seconds until the write succeeds, unless it was paused meanwhile.
 * Called by the VM's driver, which guarantees order; never checks the VM's state.
 */
import { constants } from "node:fs";
import { open, type FileHandle } from "node:fs/promises";
import { abortable, isPlatformError, PlatformError, withDeadline, type CallOptions, type Clock } from "@fluxvm/core";
import type { HostProcess } from "@fluxvm/host";
import type { Logger } from "@fluxvm/telemetry";
import type { MigrationTarget, SnapshotTarget, VmChange, VmExit, VmProcess, VmProcessRecord, VmStats } from "@fluxvm/vmm";
import { connectQmp, type QmpClient, type QmpEvent } from "./api.ts";
import type { QemuConfig } from "./config.ts";
import { computeExit, guestEndOf } from "./exit-reason.ts";
import { readProcessStats } from "./proc-scan.ts";
import { parseStatus, type MachineStatus } from "./qemu-status.ts";

export interface MachineOptions {
  readonly vmId: string;
  readonly record: VmProcessRecord;
  readonly process: HostProcess;
  readonly qmpPath: string;
  readonly config: QemuConfig;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called once when the process is gone, before `exited` settles. */
  readonly release: () => Promise<void>;
}

/** How long the last events may take to arrive after the process has ended. */
const LAST_EVENTS_MS = 200;
const RECONNECT_MIN_MS = 10;
const RECONNECT_MAX_MS = 2000;
/** Linux's open(2): a handle on whatever lies there, which opens nothing. Node has no name for it. */
const O_PATH = 0o10000000;

export class QemuMachine implements VmProcess {
  readonly record: VmProcessRecord;
  readonly exited: Promise<VmExit>;
  readonly #options: MachineOptions;
  readonly #gone = new AbortController();
  #client: QmpClient | undefined;
  #connecting: Promise<QmpClient> | undefined;
  #guestEnd: VmExit | undefined;
  #finishing = false;
  #killed = false;
  #detached = false;
  #paused = false;
  #retryingDisk = false;

  constructor(options: MachineOptions) {
    this.#options = options;
    this.record = options.record;
    this.exited = this.#watch();
  }

  /**
   * Makes the control connection and learns whether the guest has ended already. When that fails the loop goes on
   * trying, so that the caller may keep the machine all the same.
   */
  async attach(options: CallOptions): Promise<MachineStatus> {
    try {
      return await this.#readStatus(options.signal);
    } catch (error) {
      if (this.#client === undefined && !this.#gone.signal.aborted) void this.#reconnect(); // handles its own failures
      throw error;
    }
  }

  /** One attempt at the control connection, for the launch. @throws what `connectQmp` throws. */
  async connectOnce(options: CallOptions): Promise<void> {
    await abortable(this.#connect(), options.signal);
  }

  /** Lets go of the process without touching it; the loop ends. For a daemon that stops: the machine is not used afterwards. */
  detach(): void {
    this.#detached = true;
    this.#gone.abort(new PlatformError("REQUEST_CANCELLED", "The daemon stops"));
    this.#client?.close();
  }

  async boot(options: CallOptions): Promise<void> {
    await this.#command("cont", options.signal);
  }

  async pause(options: CallOptions): Promise<void> {
    this.#paused = true;
    await this.#command("stop", options.signal);
  }

  async resume(options: CallOptions): Promise<void> {
    this.#paused = false;
    await this.#command("cont", options.signal);
  }

  async status(options: CallOptions): Promise<"prelaunch" | "running" | "paused" | "ended"> {
    if (this.#guestEnd !== undefined || this.#gone.signal.aborted) return "ended";
    try {
      return (await this.#readStatus(options.signal)).kind;
    } catch (error) {
      if (isPlatformError(error, "VM_EXITED")) return "ended";
      throw error;
    }
  }

  async snapshot(_target: SnapshotTarget, _options: CallOptions): Promise<void> {
    throw unsupported("snapshot");
  }

  async migrate(_target: MigrationTarget, _options: CallOptions): Promise<void> {
    throw unsupported("migrate");
  }

  async update(change: VmChange, _options: CallOptions): Promise<void> {
    throw unsupported(`change of ${change.kind}`);
  }

  async stats(options: CallOptions): Promise<VmStats> {
    options.signal.throwIfAborted();
    const stats = await readProcessStats(this.record);
    if (stats === undefined) throw this.#exitedError();
    return stats;
  }

  async requestShutdown(options: CallOptions): Promise<void> {
    await this.#command("system_powerdown", options.signal);
  }

  async kill(options: CallOptions): Promise<void> {
    options.signal.throwIfAborted();
    if (!this.#gone.signal.aborted) {
      this.#killed = true;
      await this.#options.process.kill(options);
    }
    await abortable(this.exited, options.signal);
  }

  async #watch(): Promise<VmExit> {
    const { process, clock, release, logger, vmId } = this.#options;
    const end = await process.exited;
    const lastEvents = this.#client?.closed ?? Promise.resolve();
    const waiting = new AbortController();
    await Promise.race([lastEvents, clock.sleep(LAST_EVENTS_MS, { signal: waiting.signal }).catch(() => undefined)]);
    waiting.abort();
    this.#gone.abort(this.#exitedError());
    this.#client?.close();
    const exit = computeExit(end, this.#guestEnd, this.#killed);
    if (this.#detached) return exit; // what it held is the next daemon's
    try {
      await release();
    } catch (error) {
      logger.warn({ vmId, err: error }, "cannot release what an ended vm held");
    }
    return exit;
  }

  async #command(name: string, signal: AbortSignal): Promise<unknown> {
    signal.throwIfAborted();
    if (this.#guestEnd !== undefined || this.#gone.signal.aborted) throw this.#exitedError();
    try {
      const client = await abortable(this.#connect(), signal);
      return await client.execute(name, undefined, { signal });
    } catch (error) {
      if (!isPlatformError(error) && !signal.aborted) await this.#settleEnd();
      if (this.#guestEnd !== undefined || this.#gone.signal.aborted) throw this.#exitedError(error);
      if (isPlatformError(error) || signal.aborted) throw error;
      throw new PlatformError("BACKEND_PROTOCOL", "QEMU's control socket cannot be reached", { cause: error });
    }
  }

  /** A socket that fails and a process that ends are usually the same event, seen in either order. */
  async #settleEnd(): Promise<void> {
    await Promise.race([this.exited, this.#options.clock.sleep(LAST_EVENTS_MS, { signal: this.#gone.signal }).catch(() => undefined)]);
  }

  async #readStatus(signal: AbortSignal): Promise<MachineStatus> {
    const status = parseStatus(await this.#command("query-status", signal));
    if (status === undefined) throw new PlatformError("BACKEND_PROTOCOL", "QEMU is in a state that is not known");
    if (status.kind === "ended") this.#finish(status.exit);
    if (status.kind === "running" && status.isHeld && !this.#retryingDisk) void this.#retryDisk(); // handles its own failures
    return status;
  }

  /** Once, after a while: QEMU repeats the write, and stops again (another event) when it fails again. */
  async #retryDisk(): Promise<void> {
    const { clock, config, logger, vmId } = this.#options;
    const { signal } = this.#gone;
    this.#retryingDisk = true;
    logger.warn({ vmId, retryMs: config.diskRetryMs }, "vm held: the host cannot write its disk");
    try {
      await clock.sleep(config.diskRetryMs, { signal });
      this.#retryingDisk = false; // before the command, whose failure may be told at once
      if (!this.#paused) await this.#command("cont", signal);
    } catch (error) {
      if (!signal.aborted) logger.warn({ vmId, err: error }, "held vm not resumed"); // the next status read tries again
    }
  }

  /** The one connection; made when there is none. Callers that give up leave the attempt to the others. */
  #connect(): Promise<QmpClient> {
    if (this.#client !== undefined) return Promise.resolve(this.#client);
    this.#connecting ??= this.#openConnection().finally(() => {
      this.#connecting = undefined;
    });
    return this.#connecting;
  }

  async #openConnection(): Promise<QmpClient> {
    const { qmpPath, clock, config } = this.#options;
    const socket = await holdSocket(qmpPath);
    let client: QmpClient;
    try {
      client = await connectQmp(
        {
          path: `/proc/self/fd/${socket.fd}`,
          clock,
          handshakeTimeoutMs: config.commandTimeoutMs,
          commandTimeoutMs: config.commandTimeoutMs,
          onEvent: (event) => this.#onEvent(event),
        },
        { signal: this.#gone.signal },
      );
    } finally {
      socket.close().catch(() => undefined); // not waited for: the client must be known before its first event
    }
    this.#client = client;
    void client.closed.then((reason) => this.#onLost(client, reason)); // #onLost handles its own failures
    return client;
  }

  #onLost(client: QmpClient, reason: Error): void {
    if (this.#client === client) this.#client = undefined;
    if (this.#gone.signal.aborted) return;
    this.#options.logger.debug({ vmId: this.#options.vmId, err: reason }, "control connection lost");
    void this.#reconnect(); // handles its own failures
  }

  /** Until it succeeds or the process is gone. */
  async #reconnect(): Promise<void> {
    const { signal } = this.#gone;
    for (let attempt = 0; !signal.aborted; attempt += 1) {
      try {
        await this.#options.clock.sleep(Math.min(RECONNECT_MAX_MS, RECONNECT_MIN_MS * 2 ** Math.min(attempt, 10)), { signal });
        await this.#readStatus(signal);
        return;
      } catch {
        // the next attempt, or the process's end, settles it
      }
    }
  }

  #onEvent(event: QmpEvent): void {
    const end = guestEndOf(event);
    if (end !== undefined) return this.#finish(end);
    if (event.name === "STOP") this.#readStatus(this.#gone.signal).catch(() => undefined); // a failed processor stops without another event
  }

  /** The guest has ended and QEMU waits: ends the process. */
  #finish(end: VmExit): void {
    this.#guestEnd ??= end;
    if (this.#finishing || this.#gone.signal.aborted) return;
    this.#finishing = true;
    this.#quit().catch((error: unknown) => {
      if (!this.#detached) this.#options.logger.warn({ vmId: this.#options.vmId, err: error }, "cannot end the process of an ended guest");
    });
  }

  async #quit(): Promise<void> {
    const { clock, config, process } = this.#options;
    try {
      await withDeadline({ clock, timeoutMs: config.quitTimeoutMs, signal: this.#gone.signal, what: "QEMU's end" }, async (signal) => {
        const client = await this.#connect();
        await client.execute("quit", undefined, { signal });
        await process.exited;
      });
    } catch {
      if (!this.#detached) await process.kill({ signal: AbortSignal.timeout(config.quitTimeoutMs) });
    }
  }

  #exitedError(cause?: unknown): PlatformError {
    return new PlatformError("VM_EXITED", `${this.#options.vmId} has ended`, cause === undefined ? {} : { cause });
  }
}

/**
 * The socket lies where QEMU can write. One that was broken out of must not lead the daemon to another VM's socket, so
 * what lies there is held by a handle, looked at, and connected to through it. @throws `ENOENT`, PlatformError `BACKEND_PROTOCOL`.
 */
async function holdSocket(path: string): Promise<FileHandle> {
  const place = await open(path, O_PATH | constants.O_NOFOLLOW);
  if ((await place.stat()).isSocket()) return place;
  await place.close();
  throw new PlatformError("BACKEND_PROTOCOL", "QEMU's control socket is not a socket");
}

function unsupported(what: string): PlatformError {
  return new PlatformError("BACKEND_UNSUPPORTED", `The qemu backend has no ${what} yet`);
}

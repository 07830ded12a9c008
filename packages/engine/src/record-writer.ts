/**
 * Writes one VM's record and events.
 *
 *   clean --writeFirst, writeSoon fails--> dirty --(retry timer) writeSoon succeeds--> clean
 *
 * Dirty: what is on disk may differ from what the driver holds, since a failed commit may have been made all the
 * same; the record is written again, with the events that could not be, until it is there. Called by the driver's
 * loop alone, one call at a time.
 */
import type { Clock } from "@fluxvm/core";
import type { Store, StoreChange } from "@fluxvm/store";
import type { Logger } from "@fluxvm/telemetry";
import { planUpdate, type VmRecord } from "./vm-record.ts";

const RETRY_MS = 2_000;
/** Kept for a disk that stays full; the oldest go. */
const MAX_UNWRITTEN_EVENTS = 64;

export interface RecordWriterOptions {
  readonly vmId: string;
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly dirty: boolean;
  readonly events: readonly StoreChange[];
  /** Asks the driver to call `writeSoon` in its own turn. */
  readonly requestRetry: () => void;
}

export class RecordWriter {
  readonly #options: RecordWriterOptions;
  #dirty: boolean;
  #unwritten: StoreChange[];
  #cancelRetry: () => void = () => undefined;

  constructor(options: RecordWriterOptions) {
    this.#options = options;
    this.#dirty = options.dirty;
    this.#unwritten = [...options.events];
  }

  get isDirty(): boolean {
    return this.#dirty;
  }

  /** For what must be on disk before it counts. @throws PlatformError of the store; the caller's record stays the true one. */
  async writeFirst(record: VmRecord, events: readonly StoreChange[] = []): Promise<void> {
    try {
      await this.#write(record, events);
    } catch (error) {
      this.#retryLater();
      throw error;
    }
  }

  /** For what is so already: on disk now, or soon. */
  async writeSoon(record: VmRecord, events: readonly StoreChange[] = []): Promise<void> {
    this.#unwritten = [...this.#unwritten, ...events].slice(-MAX_UNWRITTEN_EVENTS);
    try {
      await this.#write(record, []);
    } catch (error) {
      this.#log(error);
      this.#retryLater();
    }
  }

  /** Events whose record on disk says the same already: tried once. */
  async writeEvents(events: readonly StoreChange[]): Promise<void> {
    try {
      await this.#options.store.commit(events);
    } catch (error) {
      this.#log(error);
    }
  }

  /** No retries from here on. */
  stop(): void {
    this.#cancelRetry();
  }

  async #write(record: VmRecord, events: readonly StoreChange[]): Promise<void> {
    const pending = this.#unwritten;
    await this.#options.store.commit([planUpdate(record), ...pending, ...events]);
    this.#unwritten = this.#unwritten.slice(pending.length);
    this.#dirty = false;
    this.#cancelRetry();
  }

  #retryLater(): void {
    this.#dirty = true;
    this.#cancelRetry();
    this.#cancelRetry = this.#options.clock.schedule(RETRY_MS, this.#options.requestRetry);
  }

  #log(error: unknown): void {
    this.#options.logger.error({ vmId: this.#options.vmId, err: error }, "vm record not written, will try again");
  }
}

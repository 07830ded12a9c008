/**
 * Speaks QMP like QEMU over a Unix socket, one client at a time, and misbehaves when told to.
 *
 * States as QEMU's: prelaunch -> running <-> paused -> shutdown. `quit` and `end()` end it: `onEnd` is called, and the
 * socket goes away.
 */
import { rm } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";

/** What happens to the next command of a name. */
export type Fault =
  /** Never answered. */
  | { readonly kind: "stall" }
  /** Refused with these words. */
  | { readonly kind: "refuse"; readonly desc: string }
  /** The process dies before it answers. */
  | { readonly kind: "die" }
  /** The connection is closed before the answer; the process lives. */
  | { readonly kind: "hang-up" }
  /** These bytes instead of the answer. */
  | { readonly kind: "garbage"; readonly bytes: string };

export interface QmpSimulatorOptions {
  readonly path: string;
  /** Instead of the greeting; empty sends nothing. */
  readonly greeting?: string | undefined;
  readonly onEnd?: ((how: "quit" | "died") => void) | undefined;
}

const GREETING = { QMP: { version: { qemu: { micro: 22, minor: 2, major: 7 }, package: "simulated" }, capabilities: ["oob"] } };

export class QmpSimulator {
  /** Commands received, in order. */
  readonly commands: string[] = [];
  /** Clients that were greeted so far. */
  greeted = 0;
  /** Most handshakes that were under way at once. */
  maxHandshakes = 0;
  status = "prelaunch";
  readonly #options: QmpSimulatorOptions;
  readonly #server: Server;
  readonly #faults = new Map<string, Fault[]>();
  readonly #waiting: Socket[] = [];
  #client: Socket | undefined;
  #handshakes = 0;
  #ended = false;

  constructor(options: QmpSimulatorOptions) {
    this.#options = options;
    this.#server = createServer((socket) => this.#accept(socket));
  }

  static async listen(options: QmpSimulatorOptions): Promise<QmpSimulator> {
    await rm(options.path, { force: true });
    const simulator = new QmpSimulator(options);
    await new Promise<void>((resolve, reject) => simulator.#server.once("error", reject).listen(options.path, resolve));
    return simulator;
  }

  /** Faults of one command are used up in order, one each time it comes. */
  fail(command: string, fault: Fault): void {
    this.#faults.set(command, [...(this.#faults.get(command) ?? []), fault]);
  }

  /** What a guest's power-off, reset or panic looks like from outside. */
  endGuest(reason: "guest-shutdown" | "guest-reset"): void {
    this.status = "shutdown";
    this.emit("SHUTDOWN", { guest: true, reason });
    this.emit("STOP");
  }

  emit(event: string, data: Readonly<Record<string, unknown>> = {}): void {
    this.#send({ timestamp: { seconds: 1, microseconds: 0 }, event, data });
  }

  sendRaw(bytes: string): void {
    this.#client?.write(bytes);
  }

  hangUp(): void {
    this.#client?.destroy();
  }

  end(how: "quit" | "died" = "died"): void {
    if (this.#ended) return;
    this.#ended = true;
    for (const socket of [this.#client, ...this.#waiting]) socket?.destroy();
    this.#server.close();
    this.#options.onEnd?.(how);
  }

  #accept(socket: Socket): void {
    socket.on("error", () => undefined); // the client went away
    if (this.#client === undefined) this.#serve(socket);
    else this.#waiting.push(socket);
  }

  #serve(socket: Socket): void {
    this.#client = socket;
    this.greeted += 1;
    this.#handshakes += 1;
    this.maxHandshakes = Math.max(this.maxHandshakes, this.#handshakes);
    let rest = "";
    socket.setEncoding("utf8");
    socket.on("data", (text: string) => {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) this.#handle(JSON.parse(line) as { execute: string; id: unknown }); // our own client's
    });
    socket.once("close", () => {
      this.#handshakes = 0;
      this.#client = undefined;
      const next = this.#waiting.shift();
      if (next !== undefined && !this.#ended) this.#serve(next);
    });
    const greeting = this.#options.greeting ?? `${JSON.stringify(GREETING)}\r\n`;
    if (greeting !== "") socket.write(greeting);
  }

  #handle({ execute, id }: { readonly execute: string; readonly id: unknown }): void {
    this.commands.push(execute);
    const fault = this.#faults.get(execute)?.shift();
    if (fault !== undefined) return this.#misbehave(fault, id);
    switch (execute) {
      case "qmp_capabilities":
        this.#handshakes -= 1;
        break;
      case "cont":
        this.status = "running";
        this.emit("RESUME");
        break;
      case "stop":
        this.status = "paused";
        this.emit("STOP");
        break;
      case "query-status":
        return this.#send({ return: { status: this.status, running: this.status === "running" }, id });
      case "system_powerdown":
        this.emit("POWERDOWN");
        break;
      case "quit":
        this.#send({ return: {}, id });
        return this.end("quit");
      default:
        return this.#send({ error: { class: "CommandNotFound", desc: `The command ${execute} has not been found` }, id });
    }
    this.#send({ return: {}, id });
  }

  #misbehave(fault: Fault, id: unknown): void {
    switch (fault.kind) {
      case "stall":
        return;
      case "refuse":
        return this.#send({ error: { class: "GenericError", desc: fault.desc }, id });
      case "die":
        return this.end();
      case "hang-up":
        return this.hangUp();
      case "garbage":
        return this.sendRaw(fault.bytes);
    }
  }

  #send(message: unknown): void {
    this.#client?.write(`${JSON.stringify(message)}\r\n`);
  }
}

/**
 * The host's client of one guest's agent: a link that keeps itself connected, and what can be asked over it.
 * `close` and `destroy` end the link; execs in the guest go on.
 */
import type { CallOptions } from "@fluxvm/core";
import { GuestLink, type GuestLinkOptions, type GuestLinkState } from "@fluxvm/guest-channel";
import { ExecClient } from "./exec-client.ts";
import { FileClient } from "./file-client.ts";
import { GuestCaller } from "./guest-caller.ts";

export interface GuestInfo {
  readonly agentInstanceId: string;
  readonly agentVersion: string;
  readonly bootId: string;
  readonly vmId: string;
  readonly uptimeMs: number;
  readonly capabilities: readonly string[];
}

export interface GuestDetails extends GuestInfo {
  readonly hostname: string;
  /** `agent`: the agent is PID 1; `image`: the image has an init of its own. */
  readonly init: "agent" | "image";
  /** Why the image's program could not be started. */
  readonly workloadError?: string | undefined;
}

export type GuestClientOptions = GuestLinkOptions;

/** What others hold. */
export interface GuestAgent {
  readonly exec: ExecClient;
  readonly files: FileClient;
  readonly state: GuestLinkState;
  readonly connected: boolean;
  /** Of the current connection. */
  readonly guest: GuestInfo | undefined;
  /** Called on each change of `state`; the result stops it. */
  subscribe(listener: (state: GuestLinkState) => void): () => void;
  /** Waits until the agent answers. @throws PlatformError `AGENT_AUTH_FAILED`; `AGENT_UNREACHABLE` once closed; the signal's reason */
  waitReady(options: CallOptions): Promise<GuestInfo>;
  /** Milliseconds a question takes. */
  ping(options: CallOptions): Promise<number>;
  info(options: CallOptions): Promise<GuestDetails>;
  setClock(request: { readonly wallMs: number }, options: CallOptions): Promise<void>;
  addEntropy(bytes: Uint8Array, options: CallOptions): Promise<void>;
  resetIdentity(
    request: { readonly hostname?: string; readonly machineId?: string; readonly token?: string },
    options: CallOptions,
  ): Promise<void>;
  /** Resolves when the guest has begun, not when it is off. */
  shutdown(request: { readonly mode: "poweroff" | "reboot"; readonly graceMs?: number }, options: CallOptions): Promise<void>;
  freeze(path: string, options: CallOptions): Promise<void>;
  thaw(path: string, options: CallOptions): Promise<void>;
  close(): Promise<void>;
  destroy(): void;
}

export function createGuestClient(options: GuestClientOptions): GuestAgent {
  return new GuestClient(new GuestLink(options));
}

class GuestClient implements GuestAgent {
  readonly exec: ExecClient;
  readonly files: FileClient;
  readonly #link: GuestLink;
  readonly #caller: GuestCaller;

  constructor(link: GuestLink) {
    this.#link = link;
    this.#caller = new GuestCaller(link);
    this.exec = new ExecClient(this.#caller);
    this.files = new FileClient(this.#caller);
  }

  get state(): GuestLinkState {
    return this.#link.state;
  }

  get connected(): boolean {
    return this.#link.state === "ready";
  }

  get guest(): GuestInfo | undefined {
    return this.#link.channelIfReady?.welcome;
  }

  subscribe(listener: (state: GuestLinkState) => void): () => void {
    return this.#link.subscribe(listener);
  }

  async waitReady(options: CallOptions): Promise<GuestInfo> {
    return (await this.#link.channel(options)).welcome;
  }

  async ping(options: CallOptions): Promise<number> {
    return await (await this.#link.channel(options)).ping(options);
  }

  async info(options: CallOptions): Promise<GuestDetails> {
    const reply = await this.#caller.ask({ op: "info" }, options);
    return {
      agentInstanceId: reply.text("agentInstanceId"),
      agentVersion: reply.text("agentVersion"),
      bootId: reply.text("bootId"),
      vmId: reply.text("vmId"),
      uptimeMs: reply.count("uptimeMs"),
      capabilities: reply.list("capabilities", 64, String),
      hostname: reply.text("hostname"),
      init: reply.oneOf("init", ["agent", "image"]),
      workloadError: reply.optionalText("workloadError"),
    };
  }

  async setClock(request: { readonly wallMs: number }, options: CallOptions): Promise<void> {
    await this.#caller.ask({ op: "clock.set", wallMs: request.wallMs }, options);
  }

  async addEntropy(bytes: Uint8Array, options: CallOptions): Promise<void> {
    await this.#caller.ask({ op: "entropy.add", hex: Buffer.from(bytes).toString("hex") }, options);
  }

  async resetIdentity(
    request: { readonly hostname?: string; readonly machineId?: string; readonly token?: string },
    options: CallOptions,
  ): Promise<void> {
    await this.#caller.ask({ op: "identity.reset", ...request }, options);
  }

  async shutdown(request: { readonly mode: "poweroff" | "reboot"; readonly graceMs?: number }, options: CallOptions): Promise<void> {
    await this.#caller.ask({ op: "shutdown", ...request }, { signal: options.signal, repeatable: false });
  }

  async freeze(path: string, options: CallOptions): Promise<void> {
    await this.#caller.ask({ op: "fs.freeze", path }, { signal: options.signal, repeatable: false });
  }

  async thaw(path: string, options: CallOptions): Promise<void> {
    await this.#caller.ask({ op: "fs.thaw", path }, { signal: options.signal, repeatable: false });
  }

  async close(): Promise<void> {
    await this.#link.close();
  }

  destroy(): void {
    this.#link.destroy();
  }
}

/** VMs of the fake platform: every change of state is at once and wakes who waits. */
import type { CreateVmRequest, PatchVmRequest, StopVmRequest, VmStateName, VmView } from "@fluxvm/contracts";
import { PlatformError, type CallOptions, type Clock } from "@fluxvm/core";
import type { VmOperations } from "../platform.ts";
import { Feed } from "./feed.ts";
import type { FakeImages, FakeKernels } from "./fake-imports.ts";

/** What of a VM's guest the VMs switch on and off. */
export interface FakeGuestPower {
  boot(vmId: string, workload: readonly string[]): void;
  shutDown(vmId: string): void;
}

interface Vm {
  view: VmView;
  readonly request: CreateVmRequest;
  readonly console: Feed;
  expiresAtBootMs: number | undefined;
  cancelExpiry: () => void;
}

interface FakeVmsOptions {
  readonly clock: Clock;
  readonly images: FakeImages;
  readonly kernels: FakeKernels;
  readonly guests: FakeGuestPower;
}

type Ready = CallOptions & { readonly ready?: "exec" | undefined };

export class FakeVms implements VmOperations {
  readonly #options: FakeVmsOptions;
  readonly #vms = new Map<string, Vm>();
  readonly #changed = new Feed();
  #count = 0;

  constructor(options: FakeVmsOptions) {
    this.#options = options;
  }

  async create(request: CreateVmRequest, options: Ready): Promise<VmView> {
    options.signal.throwIfAborted();
    if (this.#find(request.name) !== undefined)
      throw new PlatformError("VM_NAME_TAKEN", `The name ${JSON.stringify(request.name)} is taken`);
    const image = request.image === undefined ? undefined : await this.#options.images.get(request.image);
    if (image !== undefined && image.state !== "ready")
      throw new PlatformError("IMAGE_NOT_READY", `The image ${JSON.stringify(request.image)} is not ready`);
    const kernel = this.#options.kernels.find(request.kernel ?? "default");
    if (request.kernel !== undefined && kernel === undefined)
      throw new PlatformError("KERNEL_NOT_FOUND", `There is no kernel ${JSON.stringify(request.kernel)}`);
    this.#count += 1;
    const hasAgent = request.agent?.enabled ?? true;
    const view: VmView = {
      id: `vm-${String(this.#count).padStart(16, "0")}`,
      name: request.name,
      state: "stopped",
      backend: "fake",
      ...(image === undefined ? {} : { image: { id: image.id, name: image.name }, disk_bytes: 2 * 1024 ** 3 }),
      ...(kernel === undefined ? {} : { kernel: { id: kernel.id, name: kernel.name } }),
      vcpus: request.vcpus ?? 1,
      memory_mib: request.memory_mib ?? 512,
      network: request.network ?? { mode: "user" },
      agent: { enabled: hasAgent, state: hasAgent ? "connecting" : "disabled" },
      labels: request.labels ?? {},
      created_at: this.#now(),
    };
    const vm: Vm = { view, request, console: new Feed(), expiresAtBootMs: undefined, cancelExpiry: () => undefined };
    this.#vms.set(view.id, vm);
    if (request.ttl_seconds !== undefined) this.#setTtl(vm, request.ttl_seconds);
    return this.#boot(vm, options.ready);
  }

  async list(query: Parameters<VmOperations["list"]>[0]): Promise<readonly VmView[]> {
    const matches = parseSelector(query.selector ?? "");
    return [...this.#vms.values()]
      .map((vm) => this.#render(vm))
      .filter(
        (v) =>
          (query.name === undefined || v.name === query.name) &&
          (query.state === undefined || v.state === query.state) &&
          matches(v.labels),
      );
  }

  async get(reference: string): Promise<VmView> {
    return this.#render(this.#require(reference));
  }

  async patch(reference: string, request: PatchVmRequest): Promise<VmView> {
    const vm = this.#require(reference);
    if (request.name !== undefined && request.name !== vm.view.name && this.#find(request.name) !== undefined) {
      throw new PlatformError("VM_NAME_TAKEN", `The name ${JSON.stringify(request.name)} is taken`);
    }
    const merged = Object.entries({ ...vm.view.labels, ...request.labels }).filter(([, value]) => value !== null);
    this.#set(vm, { name: request.name ?? vm.view.name, labels: Object.fromEntries(merged) as Record<string, string> }); // nulls are gone
    if (request.ttl_seconds !== undefined) this.#setTtl(vm, request.ttl_seconds ?? undefined);
    return this.#render(vm);
  }

  async start(reference: string, options: Ready): Promise<VmView> {
    const vm = this.#require(reference);
    if (vm.view.state === "running") return this.#render(vm);
    if (vm.view.state !== "stopped") throw denied("start", vm.view);
    return this.#boot(vm, options.ready);
  }

  async stop(reference: string, request: StopVmRequest): Promise<VmView> {
    const vm = this.#require(reference);
    if (vm.view.state === "stopped") return this.#render(vm);
    this.#options.guests.shutDown(vm.view.id);
    vm.console.push(Buffer.from("reboot: Power down\n"));
    const reason = request.force === true ? "killed" : "guest_shutdown";
    this.#set(vm, {
      state: "stopped",
      reason,
      stopped_at: this.#now(),
      agent: { ...vm.view.agent, state: vm.view.agent.enabled ? "lost" : "disabled" },
    });
    return this.#render(vm);
  }

  async restart(reference: string, request: StopVmRequest, options: Ready): Promise<VmView> {
    await this.stop(reference, request);
    return await this.start(reference, options);
  }

  async pause(reference: string): Promise<VmView> {
    const vm = this.#require(reference);
    if (vm.view.state !== "running")
      throw new PlatformError("VM_NOT_RUNNING", `Cannot pause ${vm.view.name}: it is ${vm.view.state}, must be running`);
    this.#set(vm, { state: "paused" });
    return this.#render(vm);
  }

  async resume(reference: string): Promise<VmView> {
    const vm = this.#require(reference);
    if (vm.view.state !== "paused")
      throw new PlatformError("VM_NOT_PAUSED", `Cannot resume ${vm.view.name}: it is ${vm.view.state}, must be paused`);
    this.#set(vm, { state: "running" });
    return this.#render(vm);
  }

  async delete(reference: string): Promise<void> {
    const vm = this.#require(reference);
    vm.cancelExpiry();
    this.#options.guests.shutDown(vm.view.id);
    this.#vms.delete(vm.view.id);
    vm.console.end();
    this.#changed.push(Buffer.alloc(0));
  }

  async wait(
    reference: string,
    states: readonly (VmStateName | "ready" | "gone")[],
    options: CallOptions & { readonly timeoutMs: number },
  ): Promise<VmView | undefined> {
    const { id } = this.#require(reference).view;
    const deadline = new AbortController();
    const cancel = this.#options.clock.schedule(options.timeoutMs, () =>
      deadline.abort(new PlatformError("WAIT_TIMEOUT", `The VM is not ${states.join(" or ")} yet`)),
    );
    try {
      for (;;) {
        const vm = this.#vms.get(id);
        if (vm === undefined) {
          if (states.includes("gone")) return undefined;
          throw new PlatformError("VM_NOT_FOUND", "The VM was deleted while it was waited for");
        }
        if (states.includes(vm.view.state) || (states.includes("ready") && vm.view.agent.state === "ready")) return this.#render(vm);
        await this.#changed.next(AbortSignal.any([options.signal, deadline.signal]));
      }
    } finally {
      cancel();
    }
  }

  async *logs(
    reference: string,
    query: { readonly lines: number; readonly follow: boolean },
    options: CallOptions,
  ): AsyncGenerator<Uint8Array, void, undefined> {
    const { console } = this.#require(reference);
    const all = console.text();
    const lines = all.split(/(?<=\n)/);
    const tail = query.lines === 0 ? "" : lines.slice(-query.lines).join("");
    let position = Buffer.byteLength(all);
    if (tail !== "") yield Buffer.from(tail);
    while (query.follow) {
      const more = console.from(position);
      if (more.length > 0) {
        position += more.length;
        yield more;
      } else if (console.isEnded) return;
      else await console.next(options.signal);
    }
  }

  print(reference: string, text: string): void {
    this.#require(reference).console.push(Buffer.from(text));
  }

  listUsers(objectId: string): readonly string[] {
    return [...this.#vms.values()]
      .map((vm) => vm.view)
      .filter((v) => v.image?.id === objectId || v.kernel?.id === objectId)
      .map((v) => v.id);
  }

  /** The id of a VM whose agent answers. */
  requireGuest(reference: string): string {
    const { view } = this.#require(reference);
    if (!view.agent.enabled) throw new PlatformError("AGENT_DISABLED", `${view.name} was created without the guest agent`);
    if (view.state !== "running") throw new PlatformError("VM_NOT_RUNNING", `${view.name} is ${view.state}, must be running`);
    return view.id;
  }

  #boot(vm: Vm, ready: "exec" | undefined): VmView {
    const { enabled } = vm.view.agent;
    if (ready === "exec" && !enabled)
      throw new PlatformError("AGENT_DISABLED", "Without the guest agent there is no first command to wait for");
    const image = vm.view.image === undefined ? undefined : this.#options.images.find(vm.view.image.id);
    const workload = vm.request.workload?.enabled === false ? [] : (vm.request.workload?.command ?? image?.config?.cmd ?? []);
    vm.console.push(Buffer.from(`Linux version 6.1.0-fake\nfluxvm-guest-agent: ready\n`));
    const { reason: _reason, stopped_at: _stopped, ...rest } = vm.view;
    vm.view = rest;
    this.#set(vm, {
      state: "running",
      machine: "fake",
      accelerator: "tcg",
      pid: 4242,
      started_at: this.#now(),
      agent: { enabled, state: enabled ? "ready" : "disabled", ...(enabled ? { version: "0.0.0-fake" } : {}) },
    });
    this.#options.guests.boot(vm.view.id, workload);
    const view = this.#render(vm);
    return ready === undefined
      ? view
      : { ...view, first_command_ms: 30, phases: { create_done_ms: 10, agent_wait_ms: 15, first_exec_ms: 5 } };
  }

  #setTtl(vm: Vm, seconds: number | undefined): void {
    vm.cancelExpiry();
    vm.expiresAtBootMs = seconds === undefined ? undefined : this.#options.clock.bootMs() + seconds * 1000;
    vm.cancelExpiry =
      seconds === undefined
        ? () => undefined
        : this.#options.clock.schedule(seconds * 1000, () => {
            void this.delete(vm.view.id); // it exists: deletion cancels this timer
          });
  }

  #render(vm: Vm): VmView {
    if (vm.expiresAtBootMs === undefined) return vm.view;
    const leftMs = Math.max(0, vm.expiresAtBootMs - this.#options.clock.bootMs());
    const expires = new Date(this.#options.clock.wallMs() + leftMs).toISOString();
    return { ...vm.view, expires_at: expires, ttl_remaining_seconds: Math.ceil(leftMs / 1000) };
  }

  #set(vm: Vm, change: Partial<VmView>): void {
    vm.view = { ...vm.view, ...change };
    this.#changed.push(Buffer.alloc(0));
  }

  #find(reference: string): Vm | undefined {
    return this.#vms.get(reference) ?? [...this.#vms.values()].find((vm) => vm.view.name === reference);
  }

  #require(reference: string): Vm {
    const vm = this.#find(reference);
    if (vm === undefined) throw new PlatformError("VM_NOT_FOUND", `There is no VM ${JSON.stringify(reference.slice(0, 200))}`);
    return vm;
  }

  #now(): string {
    return new Date(this.#options.clock.wallMs()).toISOString();
  }
}

function denied(verb: string, view: VmView): PlatformError {
  return new PlatformError("VM_STATE_DENIED", `Cannot ${verb} ${view.name}: it is ${view.state}`);
}

/** `k=v,k2!=v,k3,!k4`. @throws PlatformError `REQUEST_INVALID` */
function parseSelector(selector: string): (labels: Readonly<Record<string, string>>) => boolean {
  const terms = selector === "" ? [] : selector.split(",");
  const tests = terms.map((term): ((labels: Readonly<Record<string, string>>) => boolean) => {
    const match = /^(!?)([A-Za-z0-9][A-Za-z0-9._/-]*)(?:(!?=)(.*))?$/.exec(term);
    const [, not, key, operator, value] = match ?? [];
    if (key === undefined || (not === "!" && operator !== undefined))
      throw new PlatformError("REQUEST_INVALID", `Invalid label selector ${JSON.stringify(term)}`, {
        fields: [{ path: "label", message: "is malformed" }],
      });
    if (operator === "=") return (labels) => labels[key] === value;
    if (operator === "!=") return (labels) => labels[key] !== value;
    return not === "!" ? (labels) => labels[key] === undefined : (labels) => labels[key] !== undefined;
  });
  return (labels) => tests.every((test) => test(labels));
}

/**
 * A `Platform` in memory that behaves: VMs have states, commands of a small shell run and take input, files are kept,
 * images import step by step, TTLs expire. For the API's own tests and those of the SDK and the CLI.
 *
 * Deterministic: ids count up, time is the clock given. `intercept` replaces one coming call, for faults and hangs.
 */
import type { Clock } from "@fluxvm/core";
import type { HostReport } from "@fluxvm/contracts";
import type { Platform } from "../platform.ts";
import { FakeGuests } from "./fake-guests.ts";
import { createFakeImages, createFakeKernels, type FakeImport } from "./fake-imports.ts";
import { FakeVms } from "./fake-vms.ts";
import { createRealClock } from "./real-clock.ts";

export interface FakePlatformOptions {
  /** Default: the machine's. A `ManualClock` moves imports, sleeps and TTLs by hand. */
  readonly clock?: Clock | undefined;
  /** How long each of an import's four steps takes; default 0: it is done when the event loop next turns. */
  readonly importStepMs?: number | undefined;
}

type Group = keyof Platform;
export type FakeOperation = { [G in Group]: `${G}.${Extract<keyof Platform[G], string>}` }[Group];

export interface FakePlatform extends Platform {
  /** The next call of `operation` is answered by `reply`. Several queue up. */
  intercept(operation: FakeOperation, reply: (...args: readonly never[]) => unknown): void;
  /** The next call of `operation` fails. */
  failNext(operation: FakeOperation, error: Error): void;
  /** The next call of `operation` never ends by itself; the result says when its signal fired. */
  hangNext(operation: FakeOperation): { readonly started: Promise<void>; readonly aborted: Promise<unknown> };
  /** Appends to a VM's console, as the guest would. */
  print(vm: string, text: string): void;
  /** Adds an image that is ready. `cmd` becomes the VM's `workload` exec. */
  addImage(name: string, cmd?: readonly string[]): void;
  addKernel(name: string): void;
  setReady(isReady: boolean): void;
}

export function createFakePlatform(options: FakePlatformOptions = {}): FakePlatform {
  const clock = options.clock ?? createRealClock();
  const usedBy = (id: string): readonly string[] => vms.listUsers(id);
  const imports: FakeImport = { clock, stepMs: options.importStepMs ?? 0, usedBy };
  const images = createFakeImages(imports);
  const kernels = createFakeKernels(imports);
  const guests = new FakeGuests(clock, { requireGuest: (reference) => vms.requireGuest(reference) });
  const vms: FakeVms = new FakeVms({ clock, images, kernels, guests });
  const interceptors = new Map<string, ((...args: readonly never[]) => unknown)[]>();
  let isReady = true;

  const platform: Platform = {
    vms: intercepted("vms", vms, interceptors),
    guests: intercepted("guests", guests, interceptors),
    images: intercepted("images", images, interceptors),
    kernels: intercepted("kernels", kernels, interceptors),
    host: intercepted(
      "host",
      {
        version: () => ({ version: "0.0.0-fake", api: "v1", instance_id: "inst-0000000000000000", pid: 1 }),
        readiness: async () => ({ ok: isReady, checks: [{ name: "store", ok: isReady, ...(isReady ? {} : { detail: "told to fail" }) }] }),
        report: async () => FAKE_REPORT,
      },
      interceptors,
    ),
  };
  const intercept: FakePlatform["intercept"] = (operation, reply) => {
    interceptors.set(operation, [...(interceptors.get(operation) ?? []), reply]);
  };
  return {
    ...platform,
    intercept,
    failNext: (operation, error) => intercept(operation, () => failed(operation, error)),
    hangNext: (operation) => hang(operation, intercept),
    print: (vm, text) => vms.print(vm, text),
    addImage: (name, cmd) => images.addReady(name, cmd),
    addKernel: (name) => kernels.addReady(name),
    setReady: (value) => {
      isReady = value;
    },
  };
}

const STREAMS: ReadonlySet<string> = new Set(["vms.logs", "guests.watchFiles"]);

/** A failure as the operation delivers it: streams fail when read. */
function failed(operation: string, error: Error): unknown {
  if (!STREAMS.has(operation)) return Promise.reject(error);
  return { [Symbol.asyncIterator]: () => ({ next: async () => await Promise.reject(error) }) };
}

function hang(
  operation: FakeOperation,
  intercept: FakePlatform["intercept"],
): { readonly started: Promise<void>; readonly aborted: Promise<unknown> } {
  const started = Promise.withResolvers<void>();
  const aborted = Promise.withResolvers<unknown>();
  intercept(operation, async (...args: readonly unknown[]) => {
    const { signal } = args.at(-1) as { signal: AbortSignal }; // call options come last everywhere
    started.resolve();
    return await new Promise((_, reject) => {
      signal.addEventListener("abort", () => {
        aborted.resolve(signal.reason);
        reject(signal.reason as Error); // reasons are errors here
      });
    });
  });
  return { started: started.promise, aborted: aborted.promise };
}

function intercepted<T extends object>(
  group: Group,
  operations: T,
  interceptors: Map<string, ((...args: readonly never[]) => unknown)[]>,
): T {
  return new Proxy(operations, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name);
      if (typeof member !== "function") return member;
      return (...args: readonly never[]): unknown => {
        const reply = interceptors.get(`${group}.${String(name)}`)?.shift();
        return reply === undefined ? Reflect.apply(member, target, args) : reply(...args);
      };
    },
  });
}

const FAKE_REPORT: HostReport = {
  boot_id: "00000000-0000-0000-0000-000000000000",
  probed_at: "2026-01-01T00:00:00.000Z",
  kernel: "6.1.0-fake",
  capabilities: [
    {
      name: "kvm",
      status: "broken",
      detail: "/dev/kvm opens, but a guest never reached 64-bit mode",
      advice: "Nothing to do: software emulation is used",
    },
    { name: "qemu", status: "works", detail: "QEMU emulator version 7.2.0" },
    { name: "skopeo", status: "missing", detail: "not found", advice: "Install the package skopeo" },
  ],
};

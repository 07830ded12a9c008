/** What a pretended daemon holds and how it answers each route. Times and ids are fixed, so output can be compared. */
import {
  PlatformError,
  type CreateExecRequest,
  type CreateImageRequest,
  type CreateKernelRequest,
  type CreateVmRequest,
  type ImageView,
  type KernelView,
  type PatchVmRequest,
  type VmView,
} from "@fluxvm/contracts";
import { FakeExec, type FakeProgram } from "./fake-exec.ts";
import { FakeGuestFiles } from "./fake-guest-files.ts";
import { FAKE_PROGRAMS } from "./fake-programs.ts";

export interface FakeRequest {
  readonly method: string;
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

export interface FakeReply {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body?: string | Buffer;
  readonly stream?: AsyncIterable<Uint8Array>;
}

interface FakeVm {
  view: VmView;
  readonly files: FakeGuestFiles;
  readonly execs: Map<string, FakeExec>;
  readonly log: string;
}

const CREATED_AT = "2026-01-02T03:04:05.000Z";
const EMPTY_CONFIG = { entrypoint: [], cmd: ["/bin/sh"], env: ["PATH=/bin"], user: "", working_dir: "", stop_signal: "", labels: {} };

export class FakeHost {
  readonly programs: Record<string, FakeProgram> = { ...FAKE_PROGRAMS };
  readonly vms = new Map<string, FakeVm>();
  readonly images = new Map<string, ImageView>();
  readonly kernels = new Map<string, KernelView>();
  /** How many times an import is seen under way before it is ready. */
  importSteps = 2;
  /** Error code an import ends with, when set. */
  importError: string | undefined;
  /** Holds `POST /v1/vms` until it settles. */
  createGate: Promise<void> = Promise.resolve();
  #counter = 0;
  readonly #steps = new Map<string, number>();

  async handle(request: FakeRequest): Promise<FakeReply> {
    const [, version, collection = "", name, ...rest] = request.path.split("/").map(decodeURIComponent);
    if (request.path === "/healthz") return json(200, { ok: true });
    if (request.path === "/readyz") return json(503, { ok: false, checks: [{ name: "store", ok: false, detail: "read-only" }] });
    if (request.path === "/metrics") return { status: 200, headers: { "content-type": "text/plain" }, body: "fluxvm_vms_total 0\n" };
    if (version === "v1" && collection === "version") return json(200, { version: "0.1.0", api: "v1", instance_id: "inst-x", pid: 7 });
    if (version === "v1" && collection === "host") return json(200, hostReport());
    if (version === "v1" && collection === "vms") return await this.#handleVms(request, name, rest);
    if (version === "v1" && collection === "images")
      return this.#handleObjects(request, { objects: this.images, name, rest, make: makeImage });
    if (version === "v1" && collection === "kernels")
      return this.#handleObjects(request, { objects: this.kernels, name, rest, make: makeKernel });
    throw new PlatformError("ROUTE_UNKNOWN", `There is no route ${request.path}`);
  }

  requireVm(reference: string): FakeVm {
    for (const vm of this.vms.values()) if (vm.view.id === reference || vm.view.name === reference) return vm;
    throw new PlatformError("VM_NOT_FOUND", `There is no VM ${JSON.stringify(reference)}`);
  }

  requireExec(reference: string, execId: string): FakeExec {
    const exec = this.requireVm(reference).execs.get(execId);
    if (exec === undefined) throw new PlatformError("EXEC_NOT_FOUND", `There is no exec ${execId}`);
    return exec;
  }

  addVm(name: string, change: Partial<VmView> = {}): FakeVm {
    const id = `vm-${String((this.#counter += 1)).padStart(16, "0")}`;
    const view: VmView = {
      id,
      name,
      state: "running",
      backend: "simulated",
      vcpus: 1,
      memory_mib: 512,
      network: { mode: "user" },
      agent: { enabled: true, state: "ready" },
      labels: {},
      created_at: CREATED_AT,
      ...change,
    };
    const vm = { view, files: new FakeGuestFiles(), execs: new Map<string, FakeExec>(), log: "line one\nline two\nline three\n" };
    this.vms.set(id, vm);
    return vm;
  }

  addImage(name: string, change: Partial<ImageView> = {}): ImageView {
    const image = {
      ...makeImage({ source: name, name }, `img-${String((this.#counter += 1)).padStart(16, "0")}`),
      state: "ready" as const,
      ...change,
    };
    this.images.set(image.id, image);
    return image;
  }

  addKernel(name: string): KernelView {
    const kernel = {
      ...makeKernel({ source: "debian:test", name }, `krn-${String((this.#counter += 1)).padStart(16, "0")}`),
      state: "ready" as const,
    };
    this.kernels.set(kernel.id, kernel);
    return kernel;
  }

  async #handleVms(request: FakeRequest, name: string | undefined, rest: readonly string[]): Promise<FakeReply> {
    if (name === undefined && request.method === "POST") {
      const wanted = parse<CreateVmRequest>(request.body);
      await this.createGate;
      if ([...this.vms.values()].some((vm) => vm.view.name === wanted.name)) {
        throw new PlatformError("VM_NAME_TAKEN", `A VM named ${JSON.stringify(wanted.name)} exists`);
      }
      return json(201, this.addVm(wanted.name, viewOf(wanted, this.images)).view);
    }
    if (name === undefined) {
      const { name: only, state } = request.query;
      const all = [...this.vms.values()].map((vm) => vm.view);
      return json(200, {
        items: all.filter((vm) => (only === undefined || vm.name === only) && (state === undefined || vm.state === state)),
      });
    }
    const [noun = "", ...more] = rest;
    if (noun === "wait" && request.query["for"]?.includes("gone") === true && ![...this.vms.values()].some((vm) => vm.view.name === name)) {
      return { status: 204, headers: {} };
    }
    const vm = this.requireVm(name);
    if (noun === "") return this.#handleVm(request, vm);
    if (noun === "execs") return this.#handleExecs(request, vm, more);
    if (noun === "files") return handleFiles(request, vm.files, more[0] ?? "");
    return this.#handleVmAction(request, vm, noun);
  }

  #handleVm(request: FakeRequest, vm: FakeVm): FakeReply {
    if (request.method === "GET") return json(200, vm.view);
    if (request.method === "DELETE") {
      this.vms.delete(vm.view.id);
      return { status: 204, headers: {} };
    }
    const patch = parse<PatchVmRequest>(request.body);
    const labels: Record<string, string> = { ...vm.view.labels };
    for (const [key, value] of Object.entries(patch.labels ?? {})) {
      if (value === null) delete labels[key];
      else labels[key] = value;
    }
    const ttl = patch.ttl_seconds;
    vm.view = {
      ...vm.view,
      labels,
      ...(patch.name === undefined ? {} : { name: patch.name }),
      ...(typeof ttl === "number" ? { ttl_remaining_seconds: ttl } : {}),
    };
    if (ttl === null) delete vm.view.ttl_remaining_seconds;
    return json(200, vm.view);
  }

  #handleVmAction(request: FakeRequest, vm: FakeVm, action: string): FakeReply {
    const states = { start: "running", restart: "running", resume: "running", pause: "paused", stop: "stopped" } as const;
    switch (action) {
      case "start":
      case "restart":
      case "resume":
      case "pause":
      case "stop":
        vm.view = { ...vm.view, state: states[action] };
        return json(200, vm.view);
      case "wait":
        if (request.query["for"]?.split(",").includes(vm.view.state) === true) return json(200, vm.view);
        throw new PlatformError("WAIT_TIMEOUT", `VM ${vm.view.name} is ${vm.view.state}`);
      case "logs": {
        const lines = vm.log
          .trimEnd()
          .split("\n")
          .slice(-Number(request.query["lines"] ?? 100));
        return { status: 200, headers: { "content-type": "text/plain" }, body: `${lines.join("\n")}\n` };
      }
      case "agent":
        return json(200, {
          stdout: "",
          stderr: "",
          exit: { code: 0, timed_out: false },
          stdout_truncated: false,
          stderr_truncated: false,
          duration_ms: 1,
        });
      default:
        throw new PlatformError("ROUTE_UNKNOWN", `There is no route ${request.path}`);
    }
  }

  #handleExecs(request: FakeRequest, vm: FakeVm, rest: readonly string[]): FakeReply {
    const [id, action] = rest;
    if (id === undefined && request.method === "GET") return json(200, { items: [...vm.execs.values()].map((exec) => exec.view()) });
    if (id === undefined) {
      if (vm.view.state !== "running")
        throw new PlatformError("VM_NOT_RUNNING", `Cannot run a command in ${vm.view.name}: VM is ${vm.view.state}, must be running`);
      const wanted = parse<CreateExecRequest>(request.body);
      const program = this.programs[wanted.command[0] ?? ""];
      if (program === undefined)
        throw new PlatformError("EXEC_START_FAILED", `Cannot run ${JSON.stringify(wanted.command[0])}: no such file in the guest`);
      const execId = `exec-${String((this.#counter += 1)).padStart(16, "0")}`;
      const exec = new FakeExec({ id: execId, command: wanted.command, tty: wanted.tty !== undefined, program });
      vm.execs.set(execId, exec);
      return json(201, exec.view());
    }
    const exec = this.requireExec(vm.view.id, id);
    if (action === "signal") {
      exec.signal(parse<{ signal: string }>(request.body).signal);
      return { status: 204, headers: {} };
    }
    if (request.method === "DELETE") {
      vm.execs.delete(id);
      return { status: 204, headers: {} };
    }
    return json(200, exec.view());
  }

  #handleObjects<View extends ImageView | KernelView, Wanted extends { readonly name?: string; readonly source: string }>(
    request: FakeRequest,
    options: { objects: Map<string, View>; name: string | undefined; rest: readonly string[]; make: (wanted: Wanted, id: string) => View },
  ): FakeReply {
    const { objects, name, make } = options;
    if (name === undefined && request.method === "GET")
      return json(200, { items: [...objects.values()].map((item) => this.#advance(objects, item)) });
    if (name === undefined) {
      const kind = objects === (this.kernels as unknown) ? "krn" : "img"; // told apart by identity
      const made = make(parse<Wanted>(request.body), `${kind}-${String((this.#counter += 1)).padStart(16, "0")}`);
      objects.set(made.id, made);
      return json(202, made);
    }
    const found = [...objects.values()].find((item) => item.id === name || item.name === name);
    if (found === undefined) {
      const isKernel = objects === (this.kernels as unknown); // as above
      throw new PlatformError(
        isKernel ? "KERNEL_NOT_FOUND" : "IMAGE_NOT_FOUND",
        `There is no ${isKernel ? "kernel" : "image"} ${JSON.stringify(name)}`,
      );
    }
    if (request.method === "DELETE") {
      objects.delete(found.id);
      return { status: 204, headers: {} };
    }
    const view = this.#advance(objects, found);
    if (options.rest[0] === "wait" && view.state === "importing") throw new PlatformError("WAIT_TIMEOUT", "The import goes on");
    return json(200, view);
  }

  #advance<View extends ImageView | KernelView>(objects: Map<string, View>, item: View): View {
    if (item.state !== "importing") return item;
    const step = (this.#steps.get(item.id) ?? 0) + 1;
    this.#steps.set(item.id, step);
    const next: View = {
      ...item,
      progress: { phase: "fetching", done_bytes: step * 1_048_576, total_bytes: this.importSteps * 1_048_576 },
    };
    if (step > this.importSteps) {
      delete next.progress;
      next.state = this.importError === undefined ? "ready" : "failed";
      if (this.importError !== undefined) next.error = { code: this.importError, message: "The import came to nothing" };
    }
    objects.set(item.id, next);
    return next;
  }
}

function handleFiles(request: FakeRequest, files: FakeGuestFiles, action: string): FakeReply {
  const { path = "", offset = "0", length, recursive, mode, parents } = request.query;
  const done: FakeReply = { status: 204, headers: {} };
  switch (`${request.method} ${action}`) {
    case "GET ": {
      const data = files.read(path);
      const end = length === undefined ? undefined : Number(offset) + Number(length);
      return {
        status: 200,
        headers: { "content-type": "application/octet-stream", "x-fluxvm-file-stat": JSON.stringify(files.stat(path)) },
        body: data.subarray(Number(offset), end),
      };
    }
    case "PUT ":
      return json(
        200,
        files.write(path, request.body, { mode: mode === undefined ? undefined : Number(mode), parents: parents === "true" }),
      );
    case "DELETE ":
      files.remove(path, recursive === "true");
      return done;
    case "GET stat":
      return json(200, files.stat(path));
    case "GET list":
      return json(200, { items: files.list(path) });
    case "GET watch":
      return {
        status: 200,
        headers: { "content-type": "text/event-stream" },
        body: ': hi\n\ndata: {"type":"created","name":"a"}\n\ndata: {"type":"removed","name":"a"}\n\n',
      };
    case "POST mkdir": {
      const wanted = parse<{ path: string; parents?: boolean; mode?: number }>(request.body);
      files.makeDirectory(wanted.path, wanted);
      return done;
    }
    case "POST rename": {
      const wanted = parse<{ from: string; to: string }>(request.body);
      files.rename(wanted.from, wanted.to);
      return done;
    }
    default:
      throw new PlatformError("ROUTE_UNKNOWN", `There is no route ${request.path}`);
  }
}

function viewOf(wanted: CreateVmRequest, images: ReadonlyMap<string, ImageView>): Partial<VmView> {
  const image = [...images.values()].find((item) => item.id === wanted.image || item.name === wanted.image);
  if (wanted.image !== undefined && image === undefined)
    throw new PlatformError("IMAGE_NOT_FOUND", `There is no image ${JSON.stringify(wanted.image)}`);
  return {
    ...(wanted.vcpus === undefined ? {} : { vcpus: wanted.vcpus }),
    ...(wanted.memory_mib === undefined ? {} : { memory_mib: wanted.memory_mib }),
    ...(wanted.labels === undefined ? {} : { labels: wanted.labels }),
    ...(wanted.network === undefined ? {} : { network: wanted.network }),
    ...(image === undefined ? {} : { image: { id: image.id, name: image.name } }),
    ...(wanted.ttl_seconds === undefined ? {} : { ttl_remaining_seconds: wanted.ttl_seconds }),
  };
}

function makeImage(wanted: CreateImageRequest, id: string): ImageView {
  const name = wanted.name ?? wanted.source;
  return {
    id,
    name,
    source: wanted.source,
    state: "importing",
    kind: "rootfs",
    virtual_size_bytes: 1_073_741_824,
    stored_bytes: 52_428_800,
    config: EMPTY_CONFIG,
    used_by: [],
    created_at: CREATED_AT,
  };
}

function makeKernel(wanted: CreateKernelRequest, id: string): KernelView {
  return {
    id,
    name: wanted.name ?? "default",
    source: wanted.source,
    state: "importing",
    is_default: true,
    release: "6.1.0-test",
    has_agent: true,
    used_by: [],
    created_at: CREATED_AT,
  };
}

function hostReport(): unknown {
  return {
    boot_id: "b",
    probed_at: CREATED_AT,
    kernel: "6.1.0",
    capabilities: [
      {
        name: "kvm",
        status: "broken",
        detail: "opens, but a guest does not reach 64-bit mode",
        advice: "use a host with working KVM; accel auto uses TCG",
      },
      { name: "tun", status: "works", detail: "made and removed a tap" },
    ],
  };
}

function json(status: number, value: unknown): FakeReply {
  return { status, headers: { "content-type": "application/json" }, body: JSON.stringify(value) };
}

function parse<T>(body: Buffer): T {
  return JSON.parse(body.length === 0 ? "{}" : body.toString("utf8")) as T; // tests send what the routes document
}

import assert from "node:assert/strict";
import { test } from "node:test";
import type { CreateVmRequest } from "@fluxvm/contracts";
import { isPlatformError, type ErrorCode } from "@fluxvm/core";
import { SimulatedWorld } from "@fluxvm/engine/testing";
import { checkRequest, computeNeeds, overlaps, resolveSpec, toHostname } from "./admission.ts";
import { beginSimulatedDaemon, FOREVER } from "./testing/index.ts";

const CONFIG = { maxVcpus: 8, maxMemoryMib: 4096 };

async function admit(change: Partial<CreateVmRequest>): Promise<Awaited<ReturnType<typeof resolveSpec>>> {
  const request: CreateVmRequest = { name: "web", ...change };
  checkRequest(request, CONFIG);
  const world = new SimulatedWorld();
  return await world.run(resolveSpec(request, beginSimulatedDaemon(world).ports, FOREVER));
}

async function refused(change: Partial<CreateVmRequest>, path: string, code: ErrorCode = "REQUEST_INVALID"): Promise<void> {
  await assert.rejects(admit(change), (error) => {
    assert.ok(isPlatformError(error, code), `${code} expected for ${path}, got ${String(error)}`);
    assert.equal(error.fields[0]?.path, path, error.message);
    return true;
  });
}

test("a file system image is booted by the default kernel, with agent and workload", async () => {
  const spec = await admit({ image: "debian", cloud_init: { hostname: "h" } });
  assert.equal(spec.boot.kind === "kernel" && spec.boot.kernel.name, "cloud");
  assert.deepEqual([spec.agent, spec.configDisk, spec.init, spec.hostname], [true, true, "auto", "h"]);
  assert.deepEqual(spec.workload, {
    argv: ["/bin/app", "serve"],
    env: ["PATH=/bin", "MODE=a"],
    user: "app",
    cwd: "/srv",
    stopSignal: "SIGINT",
  });
  assert.equal(spec.diskBytes, 2 ** 31, "at least the configured size");
  assert.deepEqual(spec.network, { mode: "user", forwards: [], allow_cidrs: [] });
  assert.deepEqual(computeNeeds(spec), {
    boot: "kernel",
    firmware: undefined,
    networkMode: "user",
    accel: "auto",
    agent: true,
    vcpus: 1,
    disk: true,
  });
});

test("a disk image brings its own boot loader, and an agent only if the request says so", async () => {
  const spec = await admit({ image: "appliance" });
  assert.deepEqual(spec.boot, { kind: "firmware", firmware: "uefi" });
  assert.deepEqual([spec.agent, spec.configDisk, spec.workload], [false, false, undefined]);
  const asked = await admit({ image: "appliance", firmware: "bios", agent: {} });
  assert.deepEqual([asked.boot, asked.agent, asked.configDisk], [{ kind: "firmware", firmware: "bios" }, true, true]);
});

test("a disk image boots by a kernel when one is named", async () => {
  assert.equal((await admit({ image: "appliance", kernel: "cloud" })).boot.kind, "kernel");
  assert.equal((await admit({ image: "appliance", firmware: "none" })).boot.kind, "kernel");
});

test("a bare kernel runs without disk, agent or config disk", async () => {
  const spec = await admit({ kernel: "bare", network: { mode: "none" }, kernel_args: "count=3" });
  assert.deepEqual(
    [spec.image, spec.diskBytes, spec.agent, spec.configDisk, spec.network],
    [undefined, undefined, false, false, { mode: "none" }],
  );
  assert.equal(spec.boot.kind === "kernel" && spec.boot.args, "count=3");
});

test("an agent that is turned off still leaves the initrd its config disk", async () => {
  const spec = await admit({ image: "debian", agent: { enabled: false } });
  assert.deepEqual([spec.agent, spec.configDisk], [false, true]);
});

test("the workload is the image's with the request's changes", async () => {
  const argv = async (workload: CreateVmRequest["workload"]): Promise<unknown> =>
    (await admit({ image: "debian", workload })).workload?.argv;
  assert.deepEqual(await argv({ command: ["x"] }), ["/bin/app", "x"]);
  assert.deepEqual(await argv({ entrypoint: ["/e"] }), ["/e"]);
  assert.deepEqual(await argv({ entrypoint: [], command: ["x"] }), ["x"]);
  assert.equal(await argv({ entrypoint: [], command: [] }), undefined);
  assert.equal(await argv({ enabled: false }), undefined);
  const { workload } = await admit({ image: "debian", workload: { env: { MODE: "b", NEW: "1" }, user: "u", working_dir: "/w" } });
  assert.deepEqual([workload?.env, workload?.user, workload?.cwd], [["PATH=/bin", "MODE=b", "NEW=1"], "u", "/w"]);
});

test("what does not go together is refused by the field's name", async () => {
  await refused({ name: "vm-0123456789abcdef" }, "name");
  await refused({ vcpus: 9 }, "vcpus");
  await refused({ memory_mib: 8192 }, "memory_mib");
  await refused({ firmware: "uefi" }, "firmware");
  await refused({ image: "debian", firmware: "uefi" }, "firmware");
  await refused({ image: "appliance", firmware: "uefi", kernel: "cloud" }, "kernel");
  await refused({ image: "appliance", firmware: "bios", kernel_args: "x" }, "kernel_args");
  await refused({ image: "appliance", firmware: "bios", init: "agent" }, "init");
  await refused({ image: "debian", kernel_args: "a\nb" }, "kernel_args");
  await refused({ disk_size_gib: 1 }, "disk_size_gib");
  await refused({ cloud_init: { user: "u" } }, "cloud_init");
  await refused({ init: "image" }, "init");
  await refused({ kernel: "bare", init: "agent" }, "init");
  await refused({ kernel: "bare", agent: { enabled: true } }, "agent.enabled");
  await refused({ image: "debian", init: "image", workload: { command: ["x"] } }, "workload");
  await refused({ image: "appliance", firmware: "uefi", workload: { command: ["x"] } }, "workload");
  await refused({ workload: { env: { A: "b" } } }, "workload");
  await refused({ image: "debian", workload: { command: ["a\u0000b"] } }, "workload");
  await refused({ image: "debian", workload: { env: { A: "\u0000" } } }, "workload.env");
  await refused({ image: "debian", cloud_init: { user_data: "#cloud-config", user: "u" } }, "cloud_init.user_data");
  await refused({ image: "debian", cloud_init: { ssh_authorized_keys: ["ssh-ed25519 A\nssh-rsa B"] } }, "cloud_init.ssh_authorized_keys.0");
  await refused({ image: "debian", cloud_init: { write_files: [{ path: "/etc/../../x", content: "" }] } }, "cloud_init.write_files.0.path");
  await refused({ image: "debian", disk_size_gib: 0.5 }, "disk_size_gib", "DISK_SHRINK_REFUSED");
});

test("networks are checked", async () => {
  const user = (change: object): Partial<CreateVmRequest> => ({ image: "debian", network: { mode: "user", ...change } });
  await refused(user({ allow_cidrs: ["10.0.0.0/8", "10.1.0.0/8"] }), "network.allow_cidrs.1");
  await refused(user({ forwards: [{ host_port: 80, guest_port: 80, host_address: "localhost" }] }), "network.forwards.0.host_address");
  const port = { host_port: 80, guest_port: 80 };
  await refused(user({ forwards: [port, port] }), "network.forwards.1.host_port");
  await refused(user({ forwards: [port, { ...port, host_address: "0.0.0.0" }] }), "network.forwards.1.host_port");
  const spec = await admit(
    user({ forwards: [port, { ...port, protocol: "udp" }, { ...port, host_address: "127.0.0.2" }], allow_cidrs: ["FD00::/8"] }),
  );
  assert.deepEqual(spec.network.mode === "user" && [spec.network.forwards?.length, spec.network.allow_cidrs], [3, ["fd00::/8"]]);
});

test("images and kernels that are not there say so", async () => {
  await assert.rejects(admit({ image: "nope" }), (e) => isPlatformError(e, "IMAGE_NOT_FOUND"));
  await assert.rejects(admit({ image: "debian", kernel: "nope" }), (e) => isPlatformError(e, "KERNEL_NOT_FOUND"));
});

test("a name becomes a host name", () => {
  assert.deepEqual(["Web_1.local", "...", "a".repeat(70), "-x-"].map(toHostname), ["web-1-local", "vm", "a".repeat(63), "x"]);
});

test("forwards overlap by protocol, port and address", () => {
  assert.equal(overlaps("tcp 127.0.0.1:80", "tcp 0.0.0.0:80"), true);
  assert.equal(overlaps("tcp 127.0.0.1:80", "udp 127.0.0.1:80"), false);
  assert.equal(overlaps("tcp 127.0.0.1:80", "tcp 127.0.0.2:80"), false);
  assert.equal(overlaps("tcp 127.0.0.1:80", "tcp 127.0.0.1:8"), false);
});

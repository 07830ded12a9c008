import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError, type ErrorCode } from "@fluxvm/core";
import { SimulatedWorld } from "@fluxvm/engine/testing";
import { assertNothingLeft, FOREVER, makeCreateRequest, startSimulatedDaemon } from "./testing/index.ts";

function hasCode(code: ErrorCode): (error: unknown) => boolean {
  return (error) => {
    assert.ok(isPlatformError(error, code), `${code} expected, got ${String(error)}`);
    return true;
  };
}

test("a VM as the API shows it, through its life", async () => {
  const { world, manager } = await startSimulatedDaemon();
  const { vms } = manager;
  const created = await world.run(vms.create(makeCreateRequest("web", { labels: { a: "b" }, ttl_seconds: 3600, vcpus: 2 }), FOREVER));
  assert.deepEqual(
    [
      created.state,
      created.backend,
      created.accelerator,
      created.vcpus,
      created.memory_mib,
      created.disk_bytes,
      created.ttl_remaining_seconds,
    ],
    ["running", "sim", "tcg", 2, 512, 2 ** 31, 3600],
  );
  assert.deepEqual(
    [created.image?.name, created.kernel?.name, created.labels, created.agent.enabled],
    ["debian", "cloud", { a: "b" }, true],
  );
  assert.ok(created.started_at !== undefined && created.expires_at !== undefined && created.pid !== undefined);
  assert.deepEqual(await vms.get(created.id), await vms.get("web"));
  assert.equal((await world.run(vms.pause("web", FOREVER))).state, "paused");
  assert.equal((await world.run(vms.resume("web", FOREVER))).state, "running");
  const stopped = await world.run(vms.stop("web", {}, FOREVER));
  assert.deepEqual(
    [stopped.state, stopped.reason, stopped.pid, stopped.stopped_at !== undefined],
    ["stopped", "guest_shutdown", undefined, true],
  );
  assert.equal((await world.run(vms.start("web", FOREVER))).state, "running");
  assert.equal((await world.run(vms.restart("web", { force: true }, FOREVER))).state, "running");
  await world.run(vms.delete("web", FOREVER));
  await assert.rejects(vms.get("web"), hasCode("VM_NOT_FOUND"));
  assertNothingLeft(world, "deleted");
});

test("a name is taken from the request on until nothing is left, and free after a failure", async () => {
  const { world, manager } = await startSimulatedDaemon(undefined, { faults: [{ kind: "fail", step: "backend.launch", occurrence: 2 }] });
  const results = await world.run(
    Promise.allSettled(["same", "same", "other"].map(async (name) => await manager.vms.create(makeCreateRequest(name), FOREVER))),
  );
  const codes = results.map((r) => (r.status === "fulfilled" ? "ok" : isPlatformError(r.reason) ? r.reason.code : "?"));
  assert.deepEqual(codes, ["ok", "VM_NAME_TAKEN", "HOST_TOOL_FAILED"]);
  assert.equal((await world.run(manager.vms.create(makeCreateRequest("other"), FOREVER))).state, "running");
  const deleting = manager.vms.delete("same", FOREVER);
  await assert.rejects(manager.vms.create(makeCreateRequest("same"), FOREVER), hasCode("VM_NAME_TAKEN"));
  await world.run(deleting);
  await world.run(manager.vms.create(makeCreateRequest("same"), FOREVER));
});

test("concurrent creations and deletions of one name never leave two, or a stray", async () => {
  const { world, manager } = await startSimulatedDaemon();
  const calls: Promise<unknown>[] = [];
  for (let i = 0; i < 40; i += 1) {
    const call: Promise<unknown> = i % 2 === 0 ? manager.vms.create(makeCreateRequest("x"), FOREVER) : manager.vms.delete("x", FOREVER);
    call.catch(() => undefined); // looked at below
    calls.push(call);
    await new Promise((resolve) => setImmediate(resolve));
  }
  const results = await world.run(Promise.allSettled(calls));
  assert.ok(results.some((r) => r.status === "fulfilled"));
  for (const r of results) if (r.status === "rejected") assert.ok(isPlatformError(r.reason), String(r.reason));
  const views = await manager.vms.list({});
  assert.ok(views.length <= 1);
  assert.equal(world.host.machines.size, views.length);
});

test("user ids are the lowest free ones, and the range has an end", async () => {
  const { world, manager } = await startSimulatedDaemon(undefined, { config: { users: { kind: "range", start: 5000, count: 2 } } });
  await world.run(manager.vms.create(makeCreateRequest("a"), FOREVER));
  await world.run(manager.vms.create(makeCreateRequest("b"), FOREVER));
  assert.deepEqual(
    [...world.host.workspaces.values()].map((w) => w.owner.uid),
    [5000, 5001],
  );
  await assert.rejects(world.run(manager.vms.create(makeCreateRequest("c"), FOREVER)), hasCode("UID_RANGE_EXHAUSTED"));
  await world.run(manager.vms.delete("a", FOREVER));
  await world.run(manager.vms.create(makeCreateRequest("c"), FOREVER));
  assert.deepEqual(
    [...world.host.workspaces.values()].map((w) => w.owner.uid),
    [5001, 5000],
  );
});

test("a host port belongs to one VM", async () => {
  const { world, manager } = await startSimulatedDaemon();
  const forward = (address: string): Parameters<typeof makeCreateRequest>[1] => ({
    network: { mode: "user", forwards: [{ host_port: 8080, guest_port: 80, host_address: address }] },
  });
  await world.run(manager.vms.create(makeCreateRequest("a", forward("127.0.0.1")), FOREVER));
  await assert.rejects(world.run(manager.vms.create(makeCreateRequest("b", forward("0.0.0.0")), FOREVER)), hasCode("PORT_IN_USE"));
  await world.run(manager.vms.create(makeCreateRequest("c", forward("127.0.0.2")), FOREVER));
});

test("lists are filtered by name, labels and state, oldest first", async () => {
  const { world, manager } = await startSimulatedDaemon();
  for (const [name, tier] of [
    ["a", "web"],
    ["b", "db"],
    ["c", "web"],
  ] as const) {
    await world.run(manager.vms.create(makeCreateRequest(name, { labels: { tier } }), FOREVER));
    await world.clock.advance(10);
  }
  await world.run(manager.vms.stop("c", { force: true }, FOREVER));
  const names = async (query: Parameters<typeof manager.vms.list>[0]): Promise<string> =>
    (await manager.vms.list(query)).map((v) => v.name).join("");
  assert.equal(await names({}), "abc");
  assert.equal(await names({ selector: "tier=web" }), "ac");
  assert.equal(await names({ selector: "tier!=web,tier" }), "b");
  assert.equal(await names({ state: "stopped" }), "c");
  assert.equal(await names({ name: "b" }), "b");
  assert.equal(await names({ name: "B" }), "");
  await assert.rejects(manager.vms.list({ selector: "=" }), hasCode("REQUEST_INVALID"));
});

test("patch renames, merges labels and moves the expiry", async () => {
  const { world, manager } = await startSimulatedDaemon();
  const { vms } = manager;
  await world.run(vms.create(makeCreateRequest("a", { labels: { x: "1", y: "2" }, ttl_seconds: 60 }), FOREVER));
  await world.run(vms.create(makeCreateRequest("b"), FOREVER));
  await assert.rejects(world.run(vms.patch("a", { name: "b" }, FOREVER)), hasCode("VM_NAME_TAKEN"));
  const patched = await world.run(vms.patch("a", { name: "c", labels: { x: null, z: "3" }, ttl_seconds: 600 }, FOREVER));
  assert.deepEqual([patched.name, patched.labels, patched.ttl_remaining_seconds], ["c", { y: "2", z: "3" }, 600]);
  await assert.rejects(vms.get("a"), hasCode("VM_NOT_FOUND"));
  assert.equal((await vms.get("c")).id, patched.id);
  await world.run(vms.create(makeCreateRequest("a"), FOREVER));
  assert.equal((await world.run(vms.patch("c", { ttl_seconds: null }, FOREVER))).expires_at, undefined);
  const many = Object.fromEntries(Array.from({ length: 64 }, (_, i) => [`k${i}`, "v"]));
  await assert.rejects(world.run(vms.patch("c", { labels: many }, FOREVER)), hasCode("REQUEST_INVALID"));
  await assert.rejects(world.run(vms.patch("c", { name: patched.id }, FOREVER)), hasCode("REQUEST_INVALID"));
});

test("patches of different labels at the same time both count", async () => {
  const { world, manager } = await startSimulatedDaemon();
  await world.run(manager.vms.create(makeCreateRequest("a"), FOREVER));
  await world.run(
    Promise.all([manager.vms.patch("a", { labels: { x: "1" } }, FOREVER), manager.vms.patch("a", { labels: { y: "2" } }, FOREVER)]),
  );
  assert.deepEqual((await manager.vms.get("a")).labels, { x: "1", y: "2" });
});

test("a rename that cannot be stored changes nothing and frees the name", async () => {
  const { world, manager } = await startSimulatedDaemon(undefined, { faults: [{ kind: "fail", step: "store.commit", occurrence: 4 }] });
  await world.run(manager.vms.create(makeCreateRequest("a"), FOREVER));
  await assert.rejects(world.run(manager.vms.patch("a", { name: "b" }, FOREVER)), hasCode("HOST_TOOL_FAILED"));
  assert.equal((await manager.vms.get("a")).name, "a");
  await world.run(manager.vms.create(makeCreateRequest("b"), FOREVER));
});

test("ready=exec runs a first command and says where the time went", async () => {
  const { world, manager } = await startSimulatedDaemon();
  world.host.guests = { ...world.host.guests, agentReadyMs: 700 };
  const view = await world.run(manager.vms.create(makeCreateRequest("a"), { ...FOREVER, ready: "exec" }));
  const { phases, first_command_ms: total } = view;
  assert.ok(phases !== undefined && total !== undefined);
  assert.ok(phases.agent_wait_ms >= 700, JSON.stringify(phases));
  assert.equal(phases.create_done_ms + phases.agent_wait_ms + phases.first_exec_ms, total);
  assert.equal(view.agent.state, "ready");
  assert.equal(world.durable.events.at(-1)?.type, "vm.first_command");
  assert.equal((await manager.vms.get("a")).phases, undefined);
});

test("ready=exec: without an agent refused before anything is made; a silent guest times out and goes on; one that ends says so", async () => {
  const { world, manager } = await startSimulatedDaemon();
  const ready = { ...FOREVER, ready: "exec" } as const;
  await assert.rejects(world.run(manager.vms.create({ name: "bare", kernel: "bare" }, ready)), hasCode("AGENT_DISABLED"));
  assertNothingLeft(world, "refused");
  world.host.guests = { ...world.host.guests, agentReadyMs: "never" };
  await assert.rejects(world.run(manager.vms.create(makeCreateRequest("silent"), ready)), hasCode("WAIT_TIMEOUT"));
  assert.equal((await manager.vms.get("silent")).state, "running");
  const ending = manager.vms.create(makeCreateRequest("ending"), ready);
  ending.catch(() => undefined);
  await world.quiesce();
  [...world.host.machines.values()].at(-1)?.endByGuest({ reason: "guest_panic", message: "panic" });
  await assert.rejects(world.run(ending), hasCode("VM_EXITED"));
  assert.equal((await manager.vms.get("ending")).state, "failed");
});

test("a caller that goes away before the VM runs leaves nothing behind", async () => {
  const { world, manager } = await startSimulatedDaemon(undefined, { faults: [{ kind: "hang", step: "backend.launch", occurrence: 1 }] });
  const controller = new AbortController();
  const creating = manager.vms.create(makeCreateRequest("a"), { signal: controller.signal });
  creating.catch(() => undefined);
  await world.quiesce();
  controller.abort(new Error("went away"));
  await assert.rejects(world.run(creating), /went away/);
  assertNothingLeft(world, "abandoned");
  await world.run(manager.vms.create(makeCreateRequest("a"), FOREVER));
});

test("a launch that hangs ends with its deadline, and others go on meanwhile", async () => {
  const { world, manager } = await startSimulatedDaemon(undefined, { faults: [{ kind: "hang", step: "disks.createRoot", occurrence: 1 }] });
  const slow = manager.vms.create(makeCreateRequest("slow"), FOREVER);
  slow.catch(() => undefined);
  await world.quiesce();
  await world.run(manager.vms.create(makeCreateRequest("quick"), FOREVER));
  await assert.rejects(world.run(slow), hasCode("DEADLINE_EXCEEDED"));
  assert.deepEqual([...world.host.workspaces.keys()].length, 1);
});

test("launches are bounded and all come through", async () => {
  const { world, life, manager } = await startSimulatedDaemon(undefined, { config: { parallelLaunches: 2 } });
  const create = async (_: unknown, i: number): Promise<string> => (await manager.vms.create(makeCreateRequest(`v${i}`), FOREVER)).state;
  const states = await world.run(Promise.all(Array.from({ length: 10 }, create)));
  assert.deepEqual(new Set(states), new Set(["running"]));
  let [now, most] = [0, 0];
  for (const step of life.faults.steps) {
    if (step === "workspaces.ensure") now += 1;
    if (step === "backend.launch") now -= 1;
    most = Math.max(most, now);
  }
  assert.equal(most, 2);
});

test("waiting: for a state, for ready, for gone, until the time is over", async () => {
  const { world, manager } = await startSimulatedDaemon();
  const { vms } = manager;
  const within = (timeoutMs: number): { signal: AbortSignal; timeoutMs: number } => ({ ...FOREVER, timeoutMs });
  await world.run(vms.create(makeCreateRequest("a"), FOREVER));
  assert.equal((await world.run(vms.wait("a", ["ready"], within(5000))))?.agent.state, "ready");
  assert.equal((await world.run(vms.wait("a", ["running"], within(0))))?.state, "running");
  await assert.rejects(world.run(vms.wait("a", ["stopped"], within(1000))), hasCode("WAIT_TIMEOUT"));
  const stopped = vms.wait("a", ["stopped", "failed"], within(60_000));
  await world.run(vms.stop("a", { force: true }, FOREVER));
  assert.equal((await world.run(stopped))?.state, "stopped");
  const gone = vms.wait("a", ["gone"], within(60_000));
  const running = vms.wait("a", ["running"], within(60_000));
  running.catch(() => undefined);
  await world.run(vms.delete("a", FOREVER));
  assert.equal(await world.run(gone), undefined);
  await assert.rejects(running, hasCode("VM_NOT_FOUND"));
  assert.equal(await world.run(vms.wait("a", ["gone"], within(1))), undefined);
  await assert.rejects(world.run(vms.wait("a", ["running"], within(1))), hasCode("VM_NOT_FOUND"));
});

test("calls into guests: refused with the reason, else handed on", async () => {
  const { world, manager } = await startSimulatedDaemon();
  const { guests, vms } = manager;
  await assert.rejects(guests.ping("nope", FOREVER), hasCode("VM_NOT_FOUND"));
  await world.run(vms.create({ name: "bare", kernel: "bare" }, FOREVER));
  await assert.rejects(guests.ping("bare", FOREVER), hasCode("AGENT_DISABLED"));
  await world.run(vms.create(makeCreateRequest("a"), FOREVER));
  assert.deepEqual(await world.run(guests.ping("a", FOREVER)), { rtt_ms: 1, version: "sim" });
  const file = (async function* (): AsyncGenerator<Uint8Array> {
    yield await Promise.resolve(new TextEncoder().encode("hello"));
  })();
  assert.equal((await world.run(guests.writeFile("a", "/f", file, {}, FOREVER))).size, 5);
  assert.equal((await world.run(guests.statFile("a", "/f", FOREVER))).size, 5);
  await assert.rejects(world.run(guests.readFile("a", "/none", {}, FOREVER)), hasCode("GUEST_FILE_NOT_FOUND"));
  await world.run(vms.pause("a", FOREVER));
  await assert.rejects(guests.ping("a", FOREVER), hasCode("VM_NOT_RUNNING"));
});

test("a guest that never answers is unreachable after a while, not for ever", async () => {
  const { world, manager } = await startSimulatedDaemon();
  world.host.guests = { ...world.host.guests, agentReadyMs: "never" };
  await world.run(manager.vms.create(makeCreateRequest("a"), FOREVER));
  await assert.rejects(world.run(manager.guests.ping("a", FOREVER)), hasCode("AGENT_UNREACHABLE"));
});

test("run: output, exit code, a bound on output, a command that is not there", async () => {
  const { world, manager } = await startSimulatedDaemon();
  await world.run(manager.vms.create(makeCreateRequest("a"), FOREVER));
  const run = async (command: string | string[], stdin?: string): Promise<Awaited<ReturnType<typeof manager.guests.run>>> =>
    await world.run(manager.guests.run("a", { command, ...(stdin === undefined ? {} : { stdin }) }, FOREVER));
  const echo = await run(["echo", "a", "b"]);
  assert.deepEqual([echo.stdout, echo.stderr, echo.exit.code, echo.stdout_truncated], ["a b\n", "", 0, false]);
  assert.equal((await run("echo hi", "input")).stdout, "-c echo hi\n");
  assert.equal((await run(["false"])).exit.code, 1);
  const flood = await run(["flood"]);
  assert.deepEqual([flood.stdout.length, flood.stdout_truncated, flood.stderr_truncated], [1024 * 1024, true, false]);
  await assert.rejects(run(["missing"]), hasCode("EXEC_START_FAILED"));
});

test("run: a caller that goes away ends the command", async () => {
  const { world, life, manager } = await startSimulatedDaemon();
  await world.run(manager.vms.create(makeCreateRequest("a"), FOREVER));
  const controller = new AbortController();
  const running = manager.guests.run("a", { command: ["sleep", "1000"] }, { signal: controller.signal });
  running.catch(() => undefined);
  await world.clock.advance(1000);
  await world.quiesce();
  controller.abort(new Error("went away"));
  await assert.rejects(world.run(running), /went away/);
  assert.equal(life.faults.steps.at(-1), "agent.removeExec");
});

test("logs: what is there, or on until the VM is gone", async () => {
  const { world, manager } = await startSimulatedDaemon();
  const view = await world.run(manager.vms.create(makeCreateRequest("a"), FOREVER));
  const read = async (follow: boolean): Promise<string> => {
    let text = "";
    for await (const part of manager.vms.logs("a", { lines: 10, follow }, FOREVER)) text += new TextDecoder().decode(part);
    return text;
  };
  assert.equal(await world.run(read(false)), `console of ${view.id}\n`);
  assert.equal(await world.run(read(true)), `console of ${view.id}\n`);
});

test("a backend that is not there, and one that cannot", async () => {
  const { world, manager } = await startSimulatedDaemon();
  await assert.rejects(world.run(manager.vms.create(makeCreateRequest("a", { backend: "simm" }), FOREVER)), hasCode("BACKEND_UNKNOWN"));
  await assert.rejects(world.run(manager.vms.create(makeCreateRequest("a", { accel: "kvm" }), FOREVER)), hasCode("BACKEND_UNSUPPORTED"));
  assertNothingLeft(world, "refused");
});

test("closing leaves VMs running; the next daemon has them all, and counts them", async () => {
  const first = await startSimulatedDaemon();
  const { world } = first;
  for (const name of ["a", "b"]) await world.run(first.manager.vms.create(makeCreateRequest(name), FOREVER));
  await world.run(first.manager.vms.pause("b", FOREVER));
  await world.run(first.manager.close());
  await assert.rejects(world.run(first.manager.vms.create(makeCreateRequest("c"), FOREVER)), hasCode("SHUTTING_DOWN"));
  const next = await startSimulatedDaemon(world);
  assert.deepEqual(
    (await next.manager.vms.list({})).map((v) => `${v.name} ${v.state}`),
    ["a running", "b paused"],
  );
  await assert.rejects(next.manager.vms.create(makeCreateRequest("a"), FOREVER), hasCode("VM_NAME_TAKEN"));
  const text = await next.ports.metrics.render();
  assert.match(text, /fluxvm_vms\{state="running"\} 1/);
  assert.match(text, /fluxvm_vms\{state="paused"\} 1/);
  assert.match(text, /fluxvm_vms\{state="failed"\} 0/);
  assert.match(text, /fluxvm_vms_by_backend\{backend="sim"\} 2/);
  assert.match(text, /fluxvm_vms_adopted_total 2/);
});

test("closing in the middle of a launch that hangs still ends, and the next daemon undoes it", async () => {
  const first = await startSimulatedDaemon(undefined, { faults: [{ kind: "hang", step: "backend.launch", occurrence: 1 }] });
  const { world } = first;
  const creating = first.manager.vms.create(makeCreateRequest("a"), FOREVER);
  creating.catch(() => undefined);
  await world.quiesce();
  await world.run(first.manager.close());
  await assert.rejects(creating, hasCode("SHUTTING_DOWN"));
  const next = await startSimulatedDaemon(world);
  await world.quiesce();
  assert.deepEqual(await next.manager.vms.list({}), []);
  assertNothingLeft(world, "undone");
});

test("a machine that does not answer at the start is neither killed nor lost", async () => {
  const first = await startSimulatedDaemon();
  const { world } = first;
  await world.run(first.manager.vms.create(makeCreateRequest("a"), FOREVER));
  const [machine] = world.host.machines.values();
  const next = await startSimulatedDaemon(world, {
    faults: [1, 2, 3].map((occurrence) => ({ kind: "hang" as const, step: "backend.adopt", occurrence })),
  });
  assert.equal((await next.manager.vms.get("a")).state, "running");
  assert.equal(machine?.status, "running");
  await world.clock.advance(120_000);
  await world.quiesce();
  assert.equal((await world.run(next.manager.vms.pause("a", FOREVER))).state, "paused");
  assert.equal(machine?.status, "paused");
});

test("a record that cannot be read stops the start and nothing is touched", async () => {
  const first = await startSimulatedDaemon();
  const { world } = first;
  const view = await world.run(first.manager.vms.create(makeCreateRequest("a"), FOREVER));
  const before = [...world.host.machines.keys()];
  for (const [value, code] of [
    [{ format: 1, id: view.id }, "STORE_CORRUPT"],
    [{ format: 2, id: view.id }, "STORE_TOO_NEW"],
    [null, "STORE_CORRUPT"],
  ] as const) {
    const life = world.incarnate();
    await life.store.commit([{ kind: "put", collection: "vms", key: view.id, value }]);
    await assert.rejects(startSimulatedDaemon(world), hasCode(code));
    assert.deepEqual([...world.host.machines.keys()], before);
    assert.equal(world.host.workspaces.size, 1);
  }
});

test("readiness names what is wrong", async () => {
  const { world, manager } = await startSimulatedDaemon();
  assert.deepEqual(await world.run(manager.host.readiness()), {
    ok: true,
    checks: [
      { name: "store", ok: true },
      { name: "backend", ok: true, detail: "sim" },
      { name: "state_dir", ok: true },
    ],
  });
  const broken = await startSimulatedDaemon(undefined, { faults: [{ kind: "fail", step: "backend.probe", occurrence: "every" }] });
  const { ok, checks } = await broken.world.run(broken.manager.host.readiness());
  assert.equal(ok, false);
  assert.match(checks.find((c) => c.name === "backend")?.detail ?? "", /sim: Simulated failure/);
});

test("images and kernels are handed on", async () => {
  const { manager } = await startSimulatedDaemon(new SimulatedWorld());
  assert.deepEqual(
    (await manager.images.list()).map((i) => i.name),
    ["debian", "appliance"],
  );
  assert.equal((await manager.kernels.get("bare")).has_agent, false);
  await assert.rejects(manager.images.get("nope"), hasCode("IMAGE_NOT_FOUND"));
});

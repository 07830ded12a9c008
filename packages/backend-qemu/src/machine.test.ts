/** One machine over a simulated QEMU and a fake process: ends, losses and races that the real one shows rarely. */
import assert from "node:assert/strict";
import { mkdtemp, rm, symlink } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { isPlatformError, type ErrorCode } from "@fluxvm/core";
import { systemClock } from "@fluxvm/host";
import { createFakeHostHelper, type FakeProcess } from "@fluxvm/host/testing";
import { createNullLogger } from "@fluxvm/telemetry";
import { parseQemuConfig, type QemuConfigInput } from "./config.ts";
import { QemuMachine } from "./machine.ts";
import { QmpSimulator } from "./testing/qmp-simulator.ts";

let folder: string;
let count = 0;
const simulators: QmpSimulator[] = [];
before(async () => {
  folder = await mkdtemp("/tmp/fluxvm-machine-");
});
after(async () => {
  for (const simulator of simulators) simulator.end();
  await rm(folder, { recursive: true });
});

const call = (): { readonly signal: AbortSignal } => ({ signal: AbortSignal.timeout(10_000) });
const hasCode =
  (code: ErrorCode) =>
  (error: unknown): boolean =>
    isPlatformError(error, code);

interface Setup {
  readonly simulator: QmpSimulator;
  readonly machine: QemuMachine;
  readonly process: FakeProcess;
  readonly released: () => number;
}

/** The simulator and the fake process end together, as they do in life. */
async function setUp(config: QemuConfigInput = {}): Promise<Setup> {
  const path = join(folder, `${(count += 1)}.sock`);
  const helper = createFakeHostHelper();
  await helper.launchProcess({ argv: ["/bin/qemu"] }, call());
  const [process] = helper.processes;
  assert.ok(process);
  let released = 0;
  const simulator = await QmpSimulator.listen({ path, onEnd: (how) => process.end(how === "quit" ? { code: 0 } : { signal: "SIGSEGV" }) });
  simulators.push(simulator);
  helper.onSignal = (p, signal) => {
    if (signal !== "SIGKILL") return;
    p.end({ signal });
    simulator.end();
  };
  const machine = new QemuMachine({
    vmId: "vm-test",
    record: { backend: "qemu", ...process.identity, machine: "microvm", accelerator: "tcg", data: { qmp: path, vmId: "vm-test" } },
    process,
    qmpPath: path,
    config: parseQemuConfig({ commandTimeoutMs: 1000, quitTimeoutMs: 300, ...config }),
    clock: systemClock,
    logger: createNullLogger(),
    release: async () => void (released += 1),
  });
  return { simulator, machine, process, released: () => released };
}

test("a guest's power-off is told to quit and reported", async () => {
  const { simulator, machine, released } = await setUp();
  await machine.connectOnce(call());
  await machine.boot(call());
  simulator.endGuest("guest-shutdown");
  assert.deepEqual(await machine.exited, { reason: "guest_shutdown", message: "The guest powered off" });
  assert.ok(simulator.commands.includes("quit"));
  assert.equal(released(), 1);
  assert.equal(await machine.status(call()), "ended");
});

test("a QEMU that does not quit is killed, and the guest's reason stays", async () => {
  const { simulator, machine, process } = await setUp();
  await machine.connectOnce(call());
  simulator.fail("quit", { kind: "stall" });
  simulator.endGuest("guest-reset");
  assert.equal((await machine.exited).reason, "guest_reset");
  assert.deepEqual(process.signals, ["SIGKILL"]);
});

test("an end of the guest while the connection was lost is found after reconnecting", async () => {
  const { simulator, machine } = await setUp();
  await machine.connectOnce(call());
  await machine.boot(call());
  simulator.hangUp();
  simulator.status = "shutdown"; // the event goes to nobody
  assert.equal((await machine.exited).reason, "guest_shutdown");
  assert.equal(simulator.greeted, 2);
});

test("a processor that fails stops without an event of its own and is noticed", async () => {
  const { simulator, machine } = await setUp();
  await machine.connectOnce(call());
  simulator.status = "internal-error";
  simulator.emit("STOP");
  assert.equal((await machine.exited).reason, "crashed");
});

test("a guest held by a full disk of the host goes on by itself, and not while it is paused", async () => {
  const { simulator, machine } = await setUp({ diskRetryMs: 20 });
  await machine.connectOnce(call());
  await machine.boot(call());
  const continued = (): number => simulator.commands.filter((command) => command === "cont").length;
  for (const times of [2, 3]) {
    simulator.status = "io-error";
    simulator.emit("STOP");
    while (continued() < times) await systemClock.sleep(5);
    assert.equal(await machine.status(call()), "running");
  }
  await machine.pause(call());
  simulator.status = "io-error"; // as QEMU says when it was held already
  simulator.emit("STOP");
  await systemClock.sleep(100);
  assert.equal(continued(), 3);
  await machine.resume(call());
  assert.equal(continued(), 4);
  await machine.kill(call());
});

test("garbage breaks the connection, not the machine", async () => {
  const { simulator, machine } = await setUp();
  await machine.connectOnce(call());
  simulator.fail("cont", { kind: "garbage", bytes: "}{\n" });
  await assert.rejects(machine.boot(call()), hasCode("BACKEND_PROTOCOL"));
  await machine.boot(call());
  assert.equal(await machine.status(call()), "running");
  await machine.kill(call());
});

test("many callers share one handshake", async () => {
  const { simulator, machine } = await setUp();
  await Promise.all(Array.from({ length: 10 }, async () => await machine.status(call())));
  assert.deepEqual([simulator.greeted, simulator.maxHandshakes], [1, 1]);
  simulator.hangUp();
  await Promise.all(Array.from({ length: 10 }, async () => await machine.status(call()).catch(() => undefined)));
  await machine.status(call());
  assert.equal(simulator.maxHandshakes, 1);
  await machine.kill(call());
});

test("a caller that gives up leaves the handshake to the others", async () => {
  const { simulator, machine } = await setUp();
  const controller = new AbortController();
  const impatient = machine.status({ signal: controller.signal });
  const patient = machine.status(call());
  controller.abort(new Error("no longer wanted"));
  await assert.rejects(impatient, /no longer wanted/);
  assert.equal(await patient, "prelaunch");
  assert.equal(simulator.greeted, 1);
  await machine.kill(call());
});

test("a death in the middle of a command rejects it with VM_EXITED", async () => {
  const { simulator, machine } = await setUp();
  await machine.connectOnce(call());
  simulator.fail("stop", { kind: "die" });
  await assert.rejects(machine.pause(call()), hasCode("VM_EXITED"));
  const exit = await machine.exited;
  assert.deepEqual([exit.reason, exit.signal], ["crashed", "SIGSEGV"]);
});

test("a stalled command ends with its deadline and the machine can still be killed", async () => {
  const { simulator, machine } = await setUp({ commandTimeoutMs: 50 });
  await machine.connectOnce(call());
  simulator.fail("stop", { kind: "stall" });
  await assert.rejects(machine.pause(call()), hasCode("DEADLINE_EXCEEDED"));
  await machine.kill(call());
  assert.equal((await machine.exited).reason, "killed");
});

test("an unknown run state is an error, not a guess", async () => {
  const { simulator, machine } = await setUp();
  simulator.status = "levitating";
  await assert.rejects(machine.status(call()), hasCode("BACKEND_PROTOCOL"));
  await machine.kill(call());
});

test("a link in the control socket's place is not followed", async () => {
  const [a, b] = [await setUp(), await setUp()];
  const path = String(a.machine.record.data["qmp"]);
  await rm(path);
  await symlink(String(b.machine.record.data["qmp"]), path);
  await assert.rejects(a.machine.status(call()), hasCode("BACKEND_PROTOCOL"));
  assert.equal(b.simulator.greeted, 0);
  await a.machine.kill(call());
});

test("a release that fails does not keep the end from being told", async () => {
  const { machine, process } = await setUp();
  const failing = new QemuMachine({
    vmId: "vm-test",
    record: machine.record,
    process,
    qmpPath: join(folder, "none.sock"),
    config: parseQemuConfig(),
    clock: systemClock,
    logger: createNullLogger(),
    release: async () => {
      throw new Error("busy");
    },
  });
  process.end({ code: 1 });
  assert.equal((await failing.exited).reason, "crashed");
});

test("detach leaves the process alone", async () => {
  const { simulator, machine, process, released } = await setUp();
  await machine.connectOnce(call());
  machine.detach();
  await assert.rejects(machine.boot(call()), hasCode("VM_EXITED"));
  assert.deepEqual(process.signals, []);
  simulator.end("quit");
  await machine.exited;
  assert.equal(released(), 0);
});

/** The control client against a simulated QEMU that answers, stalls, dies and sends garbage. */
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { isPlatformError, type ErrorCode } from "@fluxvm/core";
import { systemClock } from "@fluxvm/host";
import fc from "fast-check";
import { connectQmp, type QmpClient, type QmpEvent } from "./api.ts";
import { QmpSimulator, type QmpSimulatorOptions } from "./testing/qmp-simulator.ts";

let folder: string;
let count = 0;
const simulators: QmpSimulator[] = [];
before(async () => {
  folder = await mkdtemp("/tmp/fluxvm-qmp-");
});
after(async () => {
  for (const simulator of simulators) simulator.end();
  await rm(folder, { recursive: true });
});

interface Setup {
  readonly simulator: QmpSimulator;
  readonly events: QmpEvent[];
  connect(timeouts?: { readonly handshakeTimeoutMs?: number; readonly commandTimeoutMs?: number }): Promise<QmpClient>;
}

async function simulate(options: Partial<QmpSimulatorOptions> = {}): Promise<Setup> {
  const path = join(folder, `${(count += 1)}.sock`);
  const simulator = await QmpSimulator.listen({ path, ...options });
  simulators.push(simulator);
  const events: QmpEvent[] = [];
  return {
    simulator,
    events,
    connect: async (timeouts = {}) =>
      await connectQmp({
        path,
        clock: systemClock,
        handshakeTimeoutMs: 5000,
        commandTimeoutMs: 5000,
        ...timeouts,
        onEvent: (event) => events.push(event),
      }),
  };
}

const hasCode =
  (code: ErrorCode, message = /./) =>
  (error: unknown): boolean =>
    isPlatformError(error, code) && message.test(error.message);

test("the handshake tells the version, and commands are answered", async () => {
  const { simulator, connect } = await simulate();
  const client = await connect();
  assert.deepEqual(client.version, { major: 7, minor: 2 });
  assert.deepEqual(await client.execute("query-status"), { status: "prelaunch", running: false });
  assert.deepEqual(simulator.commands, ["qmp_capabilities", "query-status"]);
  client.close();
  simulator.end();
});

test("answers belong to their commands, and events come between them in order", async () => {
  const { simulator, connect, events } = await simulate();
  const client = await connect();
  const [status] = await Promise.all([client.execute("query-status"), client.execute("cont"), client.execute("stop")]);
  assert.deepEqual(status, { status: "prelaunch", running: false });
  assert.deepEqual(
    events.map((e) => e.name),
    ["RESUME", "STOP"],
  );
  client.close();
  simulator.end();
});

test("a refusal carries QEMU's words and leaves the connection usable", async () => {
  const { simulator, connect } = await simulate();
  const client = await connect();
  simulator.fail("cont", { kind: "refuse", desc: "Resetting the Virtual Machine is required" });
  await assert.rejects(client.execute("cont"), hasCode("BACKEND_PROTOCOL", /refused cont: Resetting/));
  await client.execute("cont");
  client.close();
  simulator.end();
});

test("a command that is not answered ends with its deadline, and its late answer is dropped", async () => {
  const { simulator, connect } = await simulate();
  const client = await connect({ commandTimeoutMs: 50 });
  simulator.fail("stop", { kind: "stall" });
  await assert.rejects(client.execute("stop"), hasCode("DEADLINE_EXCEEDED", /stop/));
  simulator.sendRaw('{"return": {}, "id": 2}\r\n');
  assert.deepEqual(await client.execute("query-status"), { status: "prelaunch", running: false });
  client.close();
  simulator.end();
});

test("an aborted command rejects with the reason", async () => {
  const { simulator, connect } = await simulate();
  const client = await connect();
  simulator.fail("stop", { kind: "stall" });
  const controller = new AbortController();
  const stopping = client.execute("stop", undefined, { signal: controller.signal });
  const reason = new Error("no longer wanted");
  controller.abort(reason);
  await assert.rejects(stopping, reason);
  client.close();
  simulator.end();
});

test("the process's death rejects everything that waits", async () => {
  const { simulator, connect } = await simulate();
  const client = await connect();
  simulator.fail("stop", { kind: "stall" });
  simulator.fail("cont", { kind: "die" });
  const waiting = [client.execute("stop"), client.execute("cont")];
  for (const outcome of await Promise.allSettled(waiting)) {
    assert.ok(outcome.status === "rejected" && hasCode("VM_EXITED")(outcome.reason));
  }
  assert.ok(isPlatformError(await client.closed, "VM_EXITED"));
  await assert.rejects(client.execute("query-status"), hasCode("VM_EXITED"));
});

for (const [what, bytes] of [
  ["text that is no JSON", "hello\r\n"],
  ["JSON that is no object", "[1]\r\n"],
  ["an unknown kind of message", '{"surprise": 1}\r\n'],
  ["an answer nobody asked for", '{"return": {}, "id": 999}\r\n'],
  ["an answer without an id", '{"return": {}}\r\n'],
  ["an id of another type", '{"return": {}, "id": "1"}\r\n'],
  ["a second greeting", '{"QMP": {}}\r\n'],
] as const) {
  test(`${what} ends the connection`, async () => {
    const { simulator, connect } = await simulate();
    const client = await connect();
    simulator.fail("cont", { kind: "garbage", bytes });
    await assert.rejects(client.execute("cont"), hasCode("BACKEND_PROTOCOL"));
    assert.ok(isPlatformError(await client.closed, "BACKEND_PROTOCOL"));
    simulator.end();
  });
}

test("a line without an end is not collected for ever", async () => {
  const { simulator, connect } = await simulate();
  const client = await connect();
  simulator.sendRaw("x".repeat(2 * 1024 * 1024));
  const reason = await client.closed;
  assert.ok(isPlatformError(reason, "BACKEND_PROTOCOL"));
  simulator.end();
});

test("a peer that never greets is given up, as is one that greets with nonsense", async () => {
  const silent = await simulate({ greeting: "" });
  await assert.rejects(silent.connect({ handshakeTimeoutMs: 50 }), hasCode("DEADLINE_EXCEEDED"));
  silent.simulator.end();
  const odd = await simulate({ greeting: '{"QMP": {"version": "seven"}}\r\n' });
  await assert.rejects(odd.connect(), hasCode("BACKEND_PROTOCOL"));
  odd.simulator.end();
});

test("no socket and a socket nobody listens on reject with the system's code", async () => {
  const options = { clock: systemClock, handshakeTimeoutMs: 1000, commandTimeoutMs: 1000, onEvent: () => undefined };
  await assert.rejects(connectQmp({ ...options, path: join(folder, "none.sock") }), { code: "ENOENT" });
});

test("more commands than the bound are refused at once", async () => {
  const { simulator, connect } = await simulate();
  const client = await connect();
  for (let i = 0; i < 64; i += 1) simulator.fail("stop", { kind: "stall" });
  const waiting = Array.from({ length: 64 }, async () => await client.execute("stop"));
  await assert.rejects(client.execute("cont"), hasCode("QUEUE_FULL"));
  client.close();
  for (const outcome of await Promise.allSettled(waiting)) assert.equal(outcome.status, "rejected");
  simulator.end();
});

test("however the bytes are cut, and whatever they are, the client answers or ends", async () => {
  const piece = fc.oneof(
    fc.string({ maxLength: 40 }),
    fc.constantFrom("\n", '{"event":"X"}\n', '{"return":1,"id":2}\n', '{"id":2,"error":{}}\n', '{"', "\u0000", "null\n"),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(piece, { maxLength: 12 }), async (pieces) => {
      const { simulator, connect } = await simulate();
      const client = await connect();
      simulator.fail("cont", { kind: "stall" });
      const answer = client.execute("cont").then(
        () => "answered",
        () => "ended",
      );
      for (const text of pieces) simulator.sendRaw(text);
      simulator.sendRaw("\n");
      setImmediate(() => simulator.end());
      assert.match(await answer, /answered|ended/);
      await client.closed;
    }),
    { numRuns: 60 },
  );
});

/** The channel against a scripted guest: what a hostile or broken one may send. No network: two ends of a pair in memory. */
import assert from "node:assert/strict";
import { duplexPair, type Duplex } from "node:stream";
import { test } from "node:test";
import { createSeededRandom } from "@fluxvm/core";
import { ManualClock, settle } from "@fluxvm/core/testing";
import { openChannel, type GuestChannel } from "./channel.ts";
import { WINDOW_BYTES } from "./channel-stream.ts";
import { encodeFrame, FRAME_TYPE, FrameReader, type Frame } from "./frame.ts";

const WELCOME = { version: 1, agentInstanceId: "a", agentVersion: "1", bootId: "b", vmId: "vm", uptimeMs: 5, capabilities: ["exec"] };

/** The guest's end, driven by the test. */
class ScriptedGuest {
  readonly frames: Frame[] = [];
  readonly #line: Duplex;
  readonly #reader = new FrameReader({ hunt: [] });

  constructor(line: Duplex) {
    this.#line = line;
    line.on("data", (chunk: Buffer) => {
      this.#reader.push(chunk);
      for (let frame = this.#reader.next(); frame !== undefined; frame = this.#reader.next()) this.frames.push(frame);
    });
    line.on("error", () => undefined); // the channel's end may go first
  }

  get epoch(): number {
    return this.frames[0]?.epoch ?? 0;
  }

  send(type: number, more: Partial<Frame> & { readonly json?: unknown } = {}): void {
    const payload = more.json === undefined ? (more.payload ?? new Uint8Array(0)) : Buffer.from(JSON.stringify(more.json));
    this.#line.write(encodeFrame({ type, epoch: more.epoch ?? this.epoch, stream: more.stream ?? 0, offset: more.offset ?? 0, payload }));
  }

  sendRaw(bytes: Uint8Array): void {
    this.#line.write(bytes);
  }

  of(type: number): readonly Frame[] {
    return this.frames.filter((f) => f.type === type);
  }

  hangUp(): void {
    this.#line.end();
  }
}

function begin(): { clock: ManualClock; guest: ScriptedGuest; opening: Promise<GuestChannel>; abort: AbortController } {
  const [ours, theirs] = duplexPair();
  const clock = new ManualClock();
  const abort = new AbortController();
  const opening = openChannel({
    transport: ours,
    token: "t".repeat(64),
    sessionId: "s",
    clock,
    random: createSeededRandom(1),
    signal: abort.signal,
  });
  opening.catch(() => undefined); // looked at by the test
  return { clock, guest: new ScriptedGuest(theirs), opening, abort };
}

async function serving(): Promise<{ clock: ManualClock; guest: ScriptedGuest; channel: GuestChannel }> {
  const { clock, guest, opening } = begin();
  await settle();
  guest.send(FRAME_TYPE.welcome, { json: WELCOME });
  return { clock, guest, channel: await opening };
}

async function closedWith(channel: GuestChannel): Promise<string> {
  return (await channel.closed).code;
}

test("greets again and again until answered, then no more", async () => {
  const { clock, guest, opening } = begin();
  await settle();
  assert.equal(guest.of(FRAME_TYPE.hello).length, 1);
  for (const ms of [100, 200, 400, 500, 500]) await clock.advance(ms);
  assert.equal(guest.of(FRAME_TYPE.hello).length, 6);
  assert.deepEqual(JSON.parse(Buffer.from(guest.frames[0]?.payload ?? []).toString()), {
    version: 1,
    sessionId: "s",
    token: "t".repeat(64),
  });
  guest.send(FRAME_TYPE.welcome, { json: WELCOME, epoch: guest.epoch + 2 });
  await settle();
  guest.send(FRAME_TYPE.welcome, { json: WELCOME });
  const channel = await opening;
  assert.equal(channel.welcome.agentVersion, "1");
  await clock.advance(5000);
  assert.equal(guest.of(FRAME_TYPE.hello).length, 6);
  channel.destroy();
});

test("a refusal carries the guest's reason", async () => {
  const { guest, opening } = begin();
  await settle();
  guest.send(FRAME_TYPE.refused, { json: { code: "AGENT_AUTH_FAILED", message: "no" } });
  await assert.rejects(opening, { code: "AGENT_AUTH_FAILED", message: "no" });
});

test("answers that are not right end the connection", async () => {
  for (const json of [{}, [], "x", { ...WELCOME, uptimeMs: -1 }, { ...WELCOME, vmId: 5 }, { ...WELCOME, vmId: "x".repeat(300) }]) {
    const { guest, opening } = begin();
    await settle();
    guest.send(FRAME_TYPE.welcome, { json });
    await assert.rejects(opening, { code: "AGENT_PROTOCOL" }, JSON.stringify(json));
  }
});

test("giving up while greeting closes the line", async () => {
  const { opening, abort, clock } = begin();
  await settle();
  abort.abort(new Error("enough"));
  await assert.rejects(opening, { code: "REQUEST_CANCELLED" });
  assert.equal(clock.pendingTimers, 0);
});

test("a stream carries bytes both ways and ends both ways", async () => {
  const { guest, channel } = await serving();
  const stream = channel.openStream(Buffer.from("request"));
  await stream.write(Buffer.from("more"));
  stream.end();
  await settle();
  assert.deepEqual(
    guest.frames.filter((f) => f.stream === 1).map((f) => [f.type, f.offset, Buffer.from(f.payload).toString()]),
    [
      [FRAME_TYPE.open, 0, "request"],
      [FRAME_TYPE.data, 0, "more"],
      [FRAME_TYPE.fin, 4, ""],
    ],
  );
  guest.send(FRAME_TYPE.data, { stream: 1, payload: Buffer.from("answer") });
  guest.send(FRAME_TYPE.fin, { stream: 1, offset: 6 });
  assert.equal(Buffer.from((await stream.read()) ?? []).toString(), "answer");
  assert.equal(await stream.read(), undefined);
  assert.equal(stream.isOver, true);
  channel.destroy();
});

test("a writer waits for the guest's window", async () => {
  const { guest, channel } = await serving();
  const stream = channel.openStream(new Uint8Array(0));
  let done = false;
  const writing = stream.write(new Uint8Array(WINDOW_BYTES + 1000)).then(() => void (done = true));
  const sent = (): number => guest.of(FRAME_TYPE.data).reduce((sum, f) => sum + f.payload.length, 0);
  for (let i = 0; i < 50; i += 1) await settle();
  assert.deepEqual([sent(), done], [WINDOW_BYTES, false]);
  guest.send(FRAME_TYPE.window, { stream: 1, offset: 1000 });
  await writing;
  await settle();
  assert.equal(sent(), WINDOW_BYTES + 1000);
  channel.destroy();
});

test("only what is read opens the window to the guest", async () => {
  const { guest, channel } = await serving();
  const stream = channel.openStream(new Uint8Array(0));
  for (let at = 0; at < WINDOW_BYTES; at += 32_768) guest.send(FRAME_TYPE.data, { stream: 1, offset: at, payload: new Uint8Array(32_768) });
  await settle(100);
  assert.equal(guest.of(FRAME_TYPE.window).length, 0);
  await stream.read();
  await stream.read();
  await settle();
  assert.deepEqual(
    guest.of(FRAME_TYPE.window).map((f) => f.offset),
    [65_536],
  );
  channel.destroy();
});

test("a guest that breaks a rule loses the connection, and every stream with it", async () => {
  const bad: ((guest: ScriptedGuest) => void)[] = [
    (guest) => guest.send(FRAME_TYPE.data, { stream: 1, offset: 5, payload: Buffer.from("x") }),
    (guest) => guest.send(FRAME_TYPE.fin, { stream: 1, offset: 5 }),
    (guest) => guest.send(FRAME_TYPE.window, { stream: 1, offset: 1 }),
    (guest) => guest.sendRaw(Buffer.from("garbage")),
    (guest) => {
      for (let at = 0; at <= WINDOW_BYTES; at += 32_768)
        guest.send(FRAME_TYPE.data, { stream: 1, offset: at, payload: new Uint8Array(32_768) });
    },
    (guest) => {
      guest.send(FRAME_TYPE.fin, { stream: 1 });
      guest.send(FRAME_TYPE.data, { stream: 1, payload: Buffer.from("x") });
    },
  ];
  for (const breakRule of bad) {
    const { guest, channel } = await serving();
    const stream = channel.openStream(new Uint8Array(0));
    const other = channel.openStream(new Uint8Array(0));
    const reading = other.read();
    reading.catch(() => undefined); // looked at below
    await settle();
    breakRule(guest);
    assert.equal(await closedWith(channel), "AGENT_PROTOCOL", String(breakRule));
    await assert.rejects(reading, { code: "AGENT_PROTOCOL" });
    await assert.rejects(stream.write(Buffer.from("x")), { code: "AGENT_PROTOCOL" });
    assert.throws(() => channel.openStream(new Uint8Array(0)), { code: "AGENT_PROTOCOL" });
  }
});

test("frames of streams that are not there, and of later types, are passed over", async () => {
  const { guest, channel } = await serving();
  for (const type of [FRAME_TYPE.data, FRAME_TYPE.fin, FRAME_TYPE.window, FRAME_TYPE.reset, 77])
    guest.send(type, { stream: 4242, offset: 3, json: {} });
  const pinged = channel.ping({ signal: AbortSignal.timeout(5000) });
  await settle();
  guest.send(FRAME_TYPE.pong, { offset: 1 });
  assert.equal(await pinged, 0);
  channel.destroy();
});

test("a reset by the guest fails that stream with its reason", async () => {
  const { guest, channel } = await serving();
  const stream = channel.openStream(new Uint8Array(0));
  await settle();
  guest.send(FRAME_TYPE.reset, { stream: 1, json: { code: "QUEUE_FULL", message: "later" } });
  await assert.rejects(stream.read(), { code: "QUEUE_FULL", message: "later" });
  guest.send(FRAME_TYPE.reset, { stream: 2, json: { code: "VM_NOT_FOUND", message: "a code no guest knows of" } });
  const second = channel.openStream(new Uint8Array(0));
  await settle();
  guest.send(FRAME_TYPE.reset, { stream: 2, json: { code: "VM_NOT_FOUND", message: "a code no guest knows of" } });
  await assert.rejects(second.read(), { code: "AGENT_PROTOCOL" });
  channel.destroy();
});

test("a line that breaks fails what is open as unreachable", async () => {
  const { guest, channel } = await serving();
  const stream = channel.openStream(new Uint8Array(0));
  const reading = stream.read();
  const pinging = channel.ping({ signal: AbortSignal.timeout(5000) });
  pinging.catch(() => undefined); // looked at below
  guest.hangUp();
  await assert.rejects(reading, { code: "AGENT_UNREACHABLE" });
  await assert.rejects(pinging, { code: "AGENT_UNREACHABLE" });
});

test("streams share the line: a small one is not behind a large one", async () => {
  const { guest, channel } = await serving();
  const large = channel.openStream(new Uint8Array(0));
  const small = channel.openStream(new Uint8Array(0));
  const all = Promise.all([large.write(new Uint8Array(200_000)), small.write(Buffer.from("hello"))]);
  await all;
  await settle(100);
  const order = guest.of(FRAME_TYPE.data).map((f) => f.stream);
  assert.ok(order.indexOf(2) <= 3, order.join(","));
  channel.destroy();
});

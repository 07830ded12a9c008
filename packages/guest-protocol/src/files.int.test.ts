/** Files in the guest, against the real agent, over a Unix socket on this host. */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, stat, symlink, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { systemRandom } from "@fluxvm/core";
import { systemClock } from "@fluxvm/host";
import { createGuestClient, type GuestAgent, type GuestFileStat } from "./index.ts";
import { startTestAgent, type TestAgent } from "./testing/index.ts";

let agent: TestAgent;
let client: GuestAgent;
let dir: string;
const call = { signal: AbortSignal.timeout(120_000) };

before(async () => {
  agent = await startTestAgent();
  client = createGuestClient({
    endpoint: { kind: "unix", path: agent.path },
    token: agent.token,
    clock: systemClock,
    random: systemRandom,
  });
  dir = await mkdtemp(join(agent.directory, "files-"));
});
after(async () => {
  await client.close();
  await agent.stop();
});

async function readAll(path: string, range = {}): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of (await client.files.read(path, range, call)).content) parts.push(part);
  return Buffer.concat(parts);
}

async function* pieces(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

for (const size of [0, 1, 65_536, 1_000_003, 100 * 1024 * 1024]) {
  test(`a file of ${size} bytes goes in and comes back`, async () => {
    const bytes = randomBytes(size);
    const path = join(dir, `round-${size}`);
    const written = await client.files.write(path, pieces(bytes, 150_000), { mode: 0o640 }, call);
    assert.deepEqual([written.size, written.mode, written.type], [size, 0o640, "file"]);
    const digest = createHash("sha256");
    let received = 0;
    const { stat: told, content } = await client.files.read(path, {}, call);
    assert.equal(told.size, size);
    for await (const part of content) {
      digest.update(part);
      received += part.length;
    }
    assert.equal(received, size);
    assert.equal(digest.digest("hex"), createHash("sha256").update(bytes).digest("hex"));
    await rm(path);
  });
}

test("a part of a file", async () => {
  const path = join(dir, "part");
  await writeFile(path, "0123456789");
  assert.equal((await readAll(path, { offset: 3, length: 4 })).toString(), "3456");
  assert.equal((await readAll(path, { offset: 20 })).length, 0);
  assert.equal((await readAll(path, { length: 0 })).length, 0);
});

test("files of the kernel, which say they are empty", async () => {
  assert.match((await readAll("/proc/self/status")).toString(), /^Name:\s+fluxvm-guest-ag/);
});

test("attributes: given, kept, made", async () => {
  const path = join(dir, "a/b/attributes");
  await assert.rejects(client.files.write(path, [Buffer.from("x")], {}, call), { code: "GUEST_FILE_NOT_FOUND" });
  const made = await client.files.write(path, [Buffer.from("x")], { createParents: true, uid: 1234, gid: 4321, mode: 0o4755 }, call);
  assert.deepEqual([made.uid, made.gid, made.mode], [1234, 4321, 0o4755]);
  const kept = await client.files.write(path, [Buffer.from("yy")], {}, call);
  assert.deepEqual([kept.uid, kept.gid, kept.mode, kept.size], [1234, 4321, 0o4755, 2]);
  const appended = await client.files.write(path, [Buffer.from("zz")], { append: true }, call);
  assert.equal(appended.size, 4);
  assert.equal(await readFile(path, "utf8"), "yyzz");
});

test("writing through a link keeps the link", async () => {
  await writeFile(join(dir, "target"), "old");
  await symlink("target", join(dir, "link"));
  await client.files.write(join(dir, "link"), [Buffer.from("new")], {}, call);
  assert.equal(await readlink(join(dir, "link")), "target");
  assert.equal(await readFile(join(dir, "target"), "utf8"), "new");
});

test("a write that breaks off changes nothing and leaves nothing", async () => {
  const home = await mkdtemp(join(dir, "atomic-"));
  const path = join(home, "file");
  await writeFile(path, "before");
  const broken = (async function* () {
    yield Buffer.alloc(500_000, 1);
    throw new Error("the source broke");
  })();
  await assert.rejects(client.files.write(path, broken, {}, call), /the source broke/);
  const mine = new AbortController();
  const endless = (async function* () {
    for (;;) {
      yield Buffer.alloc(50_000, 1);
      if (mine.signal.aborted) return;
      mine.abort(new Error("enough"));
    }
  })();
  await assert.rejects(client.files.write(path, endless, {}, { signal: mine.signal }), /enough/);
  const other = createGuestClient({
    endpoint: { kind: "unix", path: agent.path },
    token: agent.token,
    clock: systemClock,
    random: systemRandom,
  });
  await other.waitReady(call);
  const cut = (async function* () {
    yield Buffer.alloc(500_000, 1);
    other.destroy();
    yield Buffer.alloc(10);
  })();
  await assert.rejects(other.files.write(path, cut, {}, call), { code: "AGENT_UNREACHABLE" });
  await client.ping(call);
  for (let i = 0; i < 100 && (await readdir(home)).length > 1; i += 1) await client.ping(call);
  assert.deepEqual(await readdir(home), ["file"]);
  assert.equal(await readFile(path, "utf8"), "before");
});

test("errors say what is wrong", async () => {
  const file = join(dir, "plain");
  await writeFile(file, "x");
  await assert.rejects(readAll(join(dir, "none")), { code: "GUEST_FILE_NOT_FOUND", message: /no such file/ });
  await assert.rejects(readAll(dir), { code: "GUEST_FILE_INVALID" });
  await assert.rejects(readAll(join(file, "below")), { code: "GUEST_FILE_INVALID" });
  await assert.rejects(readAll("relative"), { code: "REQUEST_INVALID" });
  await assert.rejects(readAll(`/${"x".repeat(5000)}`), { code: "REQUEST_INVALID" });
  await assert.rejects(readAll("/dev/zero"), { code: "GUEST_FILE_INVALID" });
  await assert.rejects(client.files.write(dir, [], {}, call), { code: "GUEST_FILE_INVALID" });
  await assert.rejects(client.files.write("/proc/none", [Buffer.from("x")], {}, call), /./);
  await assert.rejects(client.files.stat(join(dir, "none"), call), { code: "GUEST_FILE_NOT_FOUND" });
  await assert.rejects(client.files.makeDirectory(dir, {}, call), { code: "GUEST_FILE_EXISTS" });
  await assert.rejects(client.files.remove("/", { recursive: true }, call), { code: "REQUEST_INVALID" });
  await assert.rejects(client.files.remove(join(dir, "none"), {}, call), { code: "GUEST_FILE_NOT_FOUND" });
});

test("a full file system is told as such, and the part is gone", async () => {
  const home = await mkdtemp(join(dir, "full-"));
  const mounted = await collect(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", home]);
  assert.equal(mounted, 0);
  try {
    const big = pieces(Buffer.alloc(3 * 1024 * 1024), 100_000);
    await assert.rejects(client.files.write(join(home, "big"), big, {}, call), { code: "GUEST_OUT_OF_SPACE" });
    assert.deepEqual(await readdir(home), []);
    const usage = await client.files.usage(home, call);
    assert.equal(usage.totalBytes, 1024 * 1024);
    assert.ok(usage.availableBytes > 900_000);
  } finally {
    await collect(["umount", home]);
  }
});

test("a frozen file system stops writers, never the agent", async () => {
  const home = await mkdtemp(join(dir, "frozen-"));
  const disk = join(dir, "frozen.img");
  assert.equal(await collect(["sh", "-c", `truncate -s 16M ${disk} && mke2fs -q -F -t ext4 ${disk} && mount -o loop ${disk} ${home}`]), 0);
  try {
    await client.files.write(join(home, "before"), [Buffer.from("1")], {}, call);
    await client.freeze(home, call);
    await assert.rejects(client.files.write(join(home, "during"), [Buffer.from("2")], {}, call), {
      code: "GUEST_FILE_DENIED",
      message: /frozen/,
    });
    await assert.rejects(client.files.remove(join(home, "before"), {}, call), { code: "GUEST_FILE_DENIED" });
    assert.equal((await readAll(join(home, "before"))).toString(), "1");
    await assert.rejects(client.freeze(home, call), /./);
    await assert.rejects(client.files.remove(join(home, "before"), {}, call), { code: "GUEST_FILE_DENIED" });
    await client.thaw(home, call);
    await client.files.write(join(home, "after"), [Buffer.from("3")], {}, call);
    await assert.rejects(client.thaw(home, call), /./);
    assert.equal(await readFile(join(home, "after"), "utf8"), "3");
  } finally {
    await client.thaw(home, call).catch(() => undefined); // it is thawed when all went well
    await collect(["umount", home]);
  }
});

async function collect(argv: readonly string[]): Promise<number | undefined> {
  const execId = `exec-${randomBytes(8).toString("hex")}`;
  await client.exec.start({ execId, argv }, call);
  return (await client.exec.wait(execId, call)).exit?.code;
}

test("stat, with and without following", async () => {
  await writeFile(join(dir, "seen"), "12345", { mode: 0o600 });
  await symlink("seen", join(dir, "seen-link"));
  const link = await client.files.stat(join(dir, "seen-link"), call);
  assert.deepEqual([link.type, link.target], ["symlink", "seen"]);
  const file = await client.files.stat(join(dir, "seen-link"), { ...call, follow: true });
  const real = await stat(join(dir, "seen"));
  assert.deepEqual([file.type, file.size, file.mode, file.mtimeMs], ["file", 5, 0o600, Math.floor(real.mtimeMs)]);
});

test("a large directory is listed whole", async () => {
  const home = await mkdtemp(join(dir, "many-"));
  const names = Array.from({ length: 3000 }, (_, i) => `entry-${i}-${"n".repeat(i % 60)}`);
  for (const name of names) await writeFile(join(home, name), "");
  await mkdir(join(home, "sub"));
  const seen: GuestFileStat[] = [];
  for await (const batch of client.files.list(home, call)) seen.push(...batch);
  assert.deepEqual(seen.map((e) => e.path).sort(), [...names, "sub"].map((n) => join(home, n)).sort());
  assert.equal(seen.find((e) => e.path.endsWith("/sub"))?.type, "directory");
});

test("directories, renames, removals", async () => {
  const home = join(dir, "tree");
  await client.files.makeDirectory(join(home, "x/y/z"), { parents: true }, call);
  await client.files.makeDirectory(join(home, "x/y/z"), { parents: true }, call);
  await client.files.write(join(home, "x/y/z/f"), [Buffer.from("1")], {}, call);
  await symlink("/etc", join(home, "x/escape"));
  await client.files.rename(join(home, "x/y"), join(home, "moved"), call);
  await client.files.write(join(home, "other"), [Buffer.from("2")], {}, call);
  await assert.rejects(client.files.rename(join(home, "other"), join(home, "moved/z/f"), { ...call, noReplace: true }), {
    code: "GUEST_FILE_EXISTS",
  });
  await client.files.rename(join(home, "other"), join(home, "moved/z/f"), call);
  assert.equal(await readFile(join(home, "moved/z/f"), "utf8"), "2");
  await assert.rejects(client.files.remove(home, {}, call), { code: "GUEST_FILE_EXISTS" });
  await client.files.remove(home, { recursive: true }, call);
  await assert.rejects(lstat(home), { code: "ENOENT" });
  assert.ok((await lstat("/etc")).isDirectory());
});

test("changes are watched", async () => {
  const home = await mkdtemp(join(dir, "watch-"));
  const mine = new AbortController();
  const events = client.files.watch(home, { signal: mine.signal });
  const first = events.next();
  await client.ping(call);
  await client.exec.list(call);
  await writeFile(join(home, "new"), "x");
  const seen = [...((await first).value ?? [])];
  while (!seen.some((e) => e.kind === "closed")) seen.push(...((await events.next()).value ?? []));
  assert.deepEqual(seen.slice(0, 1), [{ kind: "created", name: "new", directory: false }]);
  await rm(join(home, "new"));
  assert.deepEqual((await events.next()).value, [{ kind: "removed", name: "new", directory: false }]);
  mine.abort(new Error("enough"));
  await assert.rejects(events.next(), /enough/);
});

test("a reader that stops does not hold others up, and the agent forgets it", async () => {
  const path = join(dir, "slow");
  await writeFile(path, Buffer.alloc(20 * 1024 * 1024, 5));
  const { content } = await client.files.read(path, {}, call);
  const slow = content[Symbol.asyncIterator]();
  await slow.next();
  assert.equal((await readAll(path)).length, 20 * 1024 * 1024);
  await slow.return?.();
  await client.ping(call);
});

test("a host that sends nonsense as a request is told so", async () => {
  // Straight to the socket: what the client would never send.
  const { encodeFrame, FRAME_TYPE, FrameReader } = await import("@fluxvm/guest-channel");
  const socket = connect({ path: agent.path });
  const send = (type: number, stream: number, payload: string): void =>
    void socket.write(encodeFrame({ type, epoch: 5, stream, offset: 0, payload: Buffer.from(payload) }));
  send(FRAME_TYPE.hello, 0, JSON.stringify({ version: 1, sessionId: "s", token: agent.token }));
  const requests = [
    "{",
    "[]",
    '{"op":5}',
    '{"op":"unknown"}',
    '{"op":"file.stat"}',
    '{"op":"file.stat","path":"/","extra":1}',
    '{"op":"exec.start","execId":"x","argv":"ls"}',
  ];
  requests.forEach((request, i) => send(FRAME_TYPE.open, i + 1, request));
  const reader = new FrameReader({ hunt: [] });
  const codes = new Map<number, string>();
  for await (const chunk of socket) {
    reader.push(chunk as Buffer); // a socket without an encoding gives buffers
    for (let frame = reader.next(); frame !== undefined; frame = reader.next()) {
      if (frame.type === FRAME_TYPE.data)
        codes.set(frame.stream, /"code":"([A-Z_]+)"/.exec(Buffer.from(frame.payload).toString())?.[1] ?? "none");
    }
    if (codes.size === requests.length) break;
  }
  assert.deepEqual(
    [...codes.values()],
    ["REQUEST_INVALID", "REQUEST_INVALID", "REQUEST_INVALID", "REQUEST_INVALID", "REQUEST_INVALID", "FIELD_UNKNOWN", "REQUEST_INVALID"],
  );
});

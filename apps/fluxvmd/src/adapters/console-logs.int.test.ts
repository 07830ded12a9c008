import { strict as assert } from "node:assert";
import { execFileSync } from "node:child_process";
import { appendFileSync, mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { systemClock } from "@fluxvm/host";
import { createConsoleLogs, lastLines } from "./console-logs.ts";

const VM = "vm-0000000000000001";

function createWorld(t: TestContext): {
  readonly path: string;
  readonly directory: string;
  readonly logs: ReturnType<typeof createConsoleLogs>;
} {
  const stateDir = mkdtempSync(join(tmpdir(), "fluxvm-console-"));
  t.after(() => rmSync(stateDir, { recursive: true, force: true }));
  const directory = join(stateDir, "vms", VM);
  mkdirSync(directory, { recursive: true });
  return { path: join(directory, "console.log"), directory, logs: createConsoleLogs({ stateDir, clock: systemClock }) };
}

test("last lines: whole, cut, unfinished, none", () => {
  const cut = (text: string, count: number): string => lastLines(Buffer.from(text), count).toString();
  assert.equal(cut("a\nb\nc\n", 2), "b\nc\n");
  assert.equal(cut("a\nb\nc", 2), "b\nc");
  assert.equal(cut("a\n", 5), "a\n");
  assert.equal(cut("a\nb\n", 0), "");
  assert.equal(cut("", 3), "");
  assert.equal(cut("\n\n\n", 2), "\n\n");
});

test("a tail reaches into the rotated file; a VM that never printed has none", async (t) => {
  const { path, logs } = createWorld(t);
  const call = { signal: new AbortController().signal };
  assert.equal((await logs.tail(VM, 10, call)).length, 0);
  writeFileSync(`${path}.1`, "old 1\nold 2\n");
  writeFileSync(path, "new 1\n");
  assert.equal(Buffer.from(await logs.tail(VM, 2, call)).toString(), "old 2\nnew 1\n");
});

test("following goes on across a rotation without losing or repeating a byte, and ends with the VM's directory", async (t) => {
  const { path, directory, logs } = createWorld(t);
  writeFileSync(path, "before\n");
  const seen: string[] = [];
  const done = (async (): Promise<void> => {
    for await (const chunk of logs.follow(VM, 1, { signal: AbortSignal.timeout(20_000) })) seen.push(Buffer.from(chunk).toString());
  })();
  let expected = "before\n";
  const caughtUp = async (): Promise<void> => {
    for (let tries = 0; seen.join("") !== expected; tries += 1) {
      assert.ok(tries < 1000, `saw ${JSON.stringify(seen.join("").slice(-200))}`);
      await systemClock.sleep(5);
    }
  };
  await caughtUp();
  for (let i = 0; i < 30; i += 1) {
    const line = `line ${i}\n`;
    expected += line;
    if (i % 10 === 9) {
      renameSync(path, `${path}.1`);
      writeFileSync(path, line);
      await caughtUp();
    } else {
      appendFileSync(path, line);
    }
  }
  await caughtUp();
  rmSync(directory, { recursive: true });
  await done;
});

test("following starts before there is a file, and ends with its signal", async (t) => {
  const { path, logs } = createWorld(t);
  const stop = new AbortController();
  const stream = logs.follow(VM, 5, { signal: stop.signal })[Symbol.asyncIterator]();
  const first = stream.next();
  writeFileSync(path, "hello\n");
  const result = await first;
  assert.equal(result.done === true ? "" : Buffer.from(result.value).toString(), "hello\n");
  const next = stream.next();
  stop.abort(new Error("enough"));
  await assert.rejects(next, /enough/);
});

test("what a broken-out VMM puts in the log's place is not read: a link to another file, a pipe, a socket, a directory", async (t) => {
  const { path, directory, logs } = createWorld(t);
  const secret = join(directory, "..", "..", "secret");
  writeFileSync(secret, "token\n");
  const ways: readonly (() => Promise<void> | void)[] = [
    () => symlinkSync(secret, path),
    () => symlinkSync(secret, `${path}.1`),
    () => void execFileSync("mkfifo", [path]),
    () => mkdirSync(path),
    async () => {
      const server = createServer().listen(path);
      t.after(() => server.close());
      await new Promise((resolve) => server.once("listening", resolve));
    },
  ];
  for (const [index, put] of ways.entries()) {
    rmSync(directory, { recursive: true });
    mkdirSync(directory);
    await put();
    assert.equal((await logs.tail(VM, 10, { signal: AbortSignal.timeout(5000) })).length, 0, `tail of way ${index}`);
    const seen: Uint8Array[] = [];
    const follow = async (): Promise<void> => {
      for await (const chunk of logs.follow(VM, 10, { signal: AbortSignal.timeout(400) })) seen.push(chunk);
    };
    await assert.rejects(follow(), /timeout/i);
    assert.equal(Buffer.concat(seen).toString(), "", `follow of way ${index}`);
  }
});

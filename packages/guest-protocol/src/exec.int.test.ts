/** Execs against the real agent, over a Unix socket on this host. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { newId, systemRandom } from "@fluxvm/core";
import { systemClock } from "@fluxvm/host";
import { createGuestClient, type ExecAttachment, type ExecCommand, type GuestAgent } from "./index.ts";
import { collectExec, startTestAgent, type CollectedExec, type TestAgent } from "./testing/index.ts";

let agent: TestAgent;
let client: GuestAgent;
const call = { signal: AbortSignal.timeout(120_000) };
const newExecId = (): string => newId("exec", systemRandom);

before(async () => {
  agent = await startTestAgent({
    config: { workload: { argv: [], env: [["FROM_IMAGE", "yes"]], user: "0:0", cwd: "/usr", stopSignal: "", tty: false } },
  });
  client = createGuestClient({
    endpoint: { kind: "unix", path: agent.path },
    token: agent.token,
    clock: systemClock,
    random: systemRandom,
  });
  await client.waitReady(call);
});
after(async () => {
  await client.close();
  await agent.stop();
});

async function start(argv: readonly string[], more: Partial<ExecCommand> = {}): Promise<ExecAttachment> {
  return await client.exec.startAttached({ execId: newExecId(), argv, ...more }, call);
}

async function run(argv: readonly string[], more: Partial<ExecCommand> = {}): Promise<CollectedExec> {
  return await collectExec(await start(argv, more));
}

/** Dead, though perhaps not collected by its parent yet. */
async function waitGone(pid: number): Promise<void> {
  for (let attempt = 0; attempt < 200; attempt += 1) {
    try {
      if (/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, "utf8"))) return;
    } catch {
      return;
    }
    await systemClock.sleep(20);
  }
  assert.fail(`process ${pid} lives on`);
}

const shell = (script: string): string[] => ["sh", "-c", script];

test("output, errors and exit code come apart", async () => {
  const result = await run(shell("echo out; echo err >&2; exit 3"));
  assert.deepEqual(result, { stdout: "out\n", stderr: "err\n", exit: { code: 3, signal: undefined, timedOut: false } });
});

test("a signal that ended it is told by name", async () => {
  assert.deepEqual((await run(shell("kill -SEGV $$"))).exit, { code: undefined, signal: "SIGSEGV", timedOut: false });
});

test("environment, working directory and arguments arrive as given", async () => {
  const result = await run(["sh", "-c", 'printf "%s|" "$A" "$B" "$PWD" "$HOME" "$0" "$@"', "zero", "a b", "ü", ""], {
    env: [
      ["A", "first"],
      ["B", "x=y z"],
      ["A", "last"],
    ],
    cwd: "/tmp",
  });
  assert.equal(result.stdout, "last|x=y z|/tmp|/root|zero|a b|ü||");
});

test("the image's environment and directory are taken when asked for", async () => {
  assert.equal((await run(shell('echo "$FROM_IMAGE $PWD"'), { inheritImageEnv: true })).stdout, "yes /usr\n");
  assert.equal((await run(shell('echo "$FROM_IMAGE $PWD"'))).stdout, " /\n");
});

test("a user by number or name, with groups", async () => {
  assert.equal((await run(shell("id -u; id -g; id -G"), { user: "1234:4321" })).stdout, "1234\n4321\n4321\n");
  assert.match((await run(shell("id -un"), { user: "nobody" })).stdout, /^nobody\n/);
  await assert.rejects(run(["true"], { user: "no-such-user" }), { code: "EXEC_START_FAILED", message: /no-such-user/ });
  await assert.rejects(run(["true"], { user: "nobody:no-such-group" }), { code: "EXEC_START_FAILED" });
});

test("what cannot be started says why and leaves nothing", async () => {
  await assert.rejects(run(["/no/such/program"]), { code: "EXEC_START_FAILED", message: /no such file/ });
  await assert.rejects(run(["no-such-program"]), { code: "EXEC_START_FAILED" });
  await assert.rejects(run(["/etc/passwd"]), { code: "EXEC_START_FAILED", message: /permission denied/ });
  await assert.rejects(run(["true"], { cwd: "/no/such/dir" }), { code: "EXEC_START_FAILED", message: /working directory/ });
  await assert.rejects(run([]), { code: "REQUEST_INVALID" });
  await assert.rejects(run(["a\0b"]), { code: "REQUEST_INVALID" });
  await assert.rejects(run(["true"], { env: [["A=B", "c"]] }), { code: "REQUEST_INVALID" });
  await assert.rejects(run(["true", "x".repeat(200_000)]), { code: "REQUEST_INVALID" });
  assert.equal((await client.exec.list(call)).filter((e) => ["/no/such/program", "no-such-program"].includes(e.argv[0] ?? "")).length, 0);
});

test("a request too long for one frame arrives whole", async () => {
  assert.equal((await run(["sh", "-c", "echo ${#1}", "sh", "x".repeat(100_000)])).stdout, "100000\n");
});

test("input goes in, is confirmed, and ends", async () => {
  const attachment = await start(["cat"], { stdin: true });
  const text = Buffer.from("0123456789".repeat(50_000));
  await Promise.all([
    (async () => {
      for (let at = 0; at < text.length; at += 70_000) await attachment.writeStdin(at, text.subarray(at, at + 70_000));
      await attachment.writeStdin(0, text.subarray(0, 10)); // known already: passed over
      await attachment.endStdin(text.length);
    })(),
    collectExec(attachment).then((result) => {
      assert.equal(result.stdout.length, text.length);
      assert.ok(result.stdout === text.toString());
      assert.equal(result.exit.code, 0);
    }),
  ]);
  await assert.rejects(attachment.writeStdin(text.length + 5, text), { code: "REQUEST_INVALID" });
});

test("input for a process that does not read waits, and others go on", async () => {
  const attachment = await start(["sleep", "60"], { stdin: true });
  const output = collectExec(attachment);
  const chunk = Buffer.alloc(64 * 1024);
  let written = 0;
  const writing = (async () => {
    for (; written < 8 * 1024 * 1024; written += chunk.length) await attachment.writeStdin(written, chunk);
  })();
  assert.equal((await run(["echo", "hello"])).stdout, "hello\n");
  await client.ping(call);
  assert.ok(written < 2 * 1024 * 1024, `${written} bytes were taken`);
  await client.exec.signal(attachment.execId, "SIGKILL", call);
  assert.equal((await output).exit.signal, "SIGKILL");
  await writing.catch(() => undefined); // it may end either way: the attachment is over
});

test("no input means an empty one", async () => {
  assert.equal((await run(shell("cat; echo done"))).stdout, "done\n");
});

test("a terminal: size, resize, echo, interrupt", async () => {
  const attachment = await start(["bash", "--norc", "--noprofile"], { tty: { rows: 33, cols: 99 }, stdin: true, env: [["PS1", "$ "]] });
  let text = "";
  let given = 0;
  const waiting = new Set<{ readonly pattern: RegExp; readonly resolve: () => void }>();
  const type = async (line: string): Promise<void> => {
    const bytes = Buffer.from(line);
    await attachment.writeStdin(given, bytes);
    given += bytes.length;
  };
  const see = async (pattern: RegExp): Promise<void> => {
    if (!pattern.test(text)) await new Promise<void>((resolve) => waiting.add({ pattern, resolve }));
  };
  const exit = (async () => {
    for await (const item of attachment.output) {
      if (item.kind === "exit") return item.exit;
      if (item.kind !== "data") continue;
      assert.equal(item.stream, "stdout");
      text += Buffer.from(item.data).toString();
      for (const w of [...waiting].filter((entry) => entry.pattern.test(text))) {
        waiting.delete(w);
        w.resolve();
      }
    }
    throw new Error("no exit");
  })();
  await type("stty size; tty; echo T=$TERM\n");
  await see(/33 99\r\n\/dev\/pts\/\d+\r\nT=xterm/);
  await client.exec.resize(attachment.execId, { rows: 50, cols: 132 }, call);
  await type("stty size\n");
  await see(/50 132/);
  // The word comes from the foreground process itself, not from the echo of what was typed: only then does ^C meet it.
  await type("sh -c 'echo here\"\"after; exec sleep 1000'\n");
  await see(/hereafter\r\n/);
  await type("\x03");
  await type("echo a; exit 7\n");
  assert.equal((await exit).code, 7);
  await assert.rejects(client.exec.resize(attachment.execId, { rows: 70_000, cols: 1 }, call), { code: "REQUEST_INVALID" });
});

test("the last output of a terminal is never cut off", async () => {
  for (let i = 0; i < 20; i += 1) {
    const result = await run(shell("seq 1 500"), { tty: { rows: 24, cols: 80 } });
    assert.match(result.stdout, /\r\n500\r\n$/);
  }
});

test("a timeout kills the whole group", async () => {
  const started = Date.now();
  const result = await run(shell("sleep 300 & echo $!; wait"), { timeoutMs: 300 });
  assert.deepEqual(result.exit, { code: undefined, signal: "SIGKILL", timedOut: true });
  assert.ok(Date.now() - started < 5000);
  await waitGone(Number(result.stdout));
});

test("signals reach the group, or the process alone", async () => {
  const attachment = await start(shell("trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.05; done"));
  const output = attachment.output[Symbol.asyncIterator]();
  await output.next();
  await client.exec.signal(attachment.execId, "TERM", { ...call, group: false });
  const seen = [];
  for (let item = await output.next(); item.done !== true; item = await output.next()) seen.push(item.value);
  assert.deepEqual(
    seen.map((s) => s.kind),
    ["data", "exit"],
  );
  await client.exec.signal(attachment.execId, "TERM", call); // ended: fine
  await assert.rejects(client.exec.signal(attachment.execId, "SIGNONSENSE", call), { code: "REQUEST_INVALID" });
  await assert.rejects(client.exec.signal("exec-none", "TERM", call), { code: "EXEC_NOT_FOUND" });
});

test("a child left behind does not hold the exit back, nor is it killed", async () => {
  const result = await run(shell("(sleep 1; echo late; echo alive > /tmp/fluxvm-left-behind-$$) & echo $$"));
  assert.equal(result.exit.code, 0);
  const path = `/tmp/fluxvm-left-behind-${result.stdout.trim()}`;
  const check = await run(shell(`for i in $(seq 100); do [ -e ${path} ] && break; sleep 0.05; done; cat ${path}; rm ${path}`));
  assert.equal(check.stdout, "alive\n");
});

test("the same id again is the same exec", async () => {
  const execId = newExecId();
  const first = await client.exec.start({ execId, argv: shell("echo $$; sleep 60") }, call);
  const again = await client.exec.start({ execId, argv: ["echo", "other"] }, call);
  assert.equal(again.pid, first.pid);
  assert.deepEqual((await client.exec.get(execId, call)).argv, shell("echo $$; sleep 60"));
  await client.exec.remove(execId, call);
  await assert.rejects(client.exec.get(execId, call), { code: "EXEC_NOT_FOUND" });
  await waitGone(first.pid);
});

test("an ended exec keeps its output until it is acknowledged", async () => {
  const execId = newExecId();
  await client.exec.start({ execId, argv: shell("printf 0123456789") }, call);
  const ended = await client.exec.wait(execId, call);
  assert.deepEqual([ended.state, ended.exit?.code, ended.stdout], ["exited", 0, { start: 0, end: 10 }]);
  assert.equal((await collectOnly(await client.exec.attach(execId, { stdout: 4 }, call))).stdout, "456789");
  await assert.rejects(client.exec.attach(execId, { stdout: 3 }, call), { code: "EXEC_OUTPUT_LOST" });
  await assert.rejects(client.exec.attach(execId, { stdout: 11 }, call), { code: "EXEC_OUTPUT_LOST" });
  assert.equal((await collectOnly(await client.exec.attach(execId, {}, call))).stdout, "456789");
  await client.exec.remove(execId, call);
});

async function collectOnly(attachment: ExecAttachment): Promise<{ readonly stdout: string }> {
  let stdout = "";
  for await (const item of attachment.output) if (item.kind === "data") stdout += Buffer.from(item.data).toString();
  return { stdout };
}

test("a newer consumer takes over", async () => {
  const attachment = await start(shell("echo one; sleep 60"));
  const output = attachment.output[Symbol.asyncIterator]();
  await output.next();
  const second = await client.exec.attach(attachment.execId, { stdout: 0, stderr: 0 }, call);
  await assert.rejects(output.next(), { code: "EXEC_TAKEN_OVER" });
  const item = await second.output[Symbol.asyncIterator]().next();
  assert.equal(item.done === false && item.value.kind === "data" && Buffer.from(item.value.data).toString(), "one\n");
  await client.exec.remove(attachment.execId, call);
});

test("taking over again and again leaves nothing in the guest", async () => {
  const first = await start(["sleep", "60"]);
  let current = first;
  for (let i = 0; i < 300; i += 1) {
    const output = current.output[Symbol.asyncIterator]();
    const next = output.next();
    next.catch(() => undefined); // awaited below
    current = await client.exec.attach(first.execId, {}, call);
    await assert.rejects(next, { code: "EXEC_TAKEN_OVER" });
  }
  current.detach();
  await client.exec.remove(first.execId, call);
});

test("a flood slows itself; the agent stays small and answers", async () => {
  const floods = await Promise.all(Array.from({ length: 8 }, async () => await start(["yes"])));
  const iterators = floods.map((f) => f.output[Symbol.asyncIterator]());
  await Promise.all(iterators.map(async (i) => await i.next()));
  for (let i = 0; i < 20; i += 1) assert.ok((await client.ping(call)) < 1000);
  assert.equal((await run(["echo", "still here"])).stdout, "still here\n");
  const status = readFileSync(`/proc/${agent.pid}/status`, "utf8");
  const peakKib = Number(/VmHWM:\s+(\d+)/.exec(status)?.[1]);
  assert.ok(peakKib > 0 && peakKib < 64 * 1024, `the agent grew to ${peakKib} KiB`);
  for (const flood of floods) {
    const { stdout } = await client.exec.get(flood.execId, call);
    assert.ok(stdout.end - stdout.start <= 1024 * 1024 + 64 * 1024);
    await client.exec.remove(flood.execId, call);
  }
  for (const iterator of iterators) await iterator.return?.();
});

test("output that drops keeps the newest", async () => {
  const execId = newExecId();
  await client.exec.start({ execId, argv: shell("seq 1 1000000; echo end; sleep 60"), retain: "drop" }, call);
  await run(shell("sleep 0.5"));
  for (let i = 0; i < 200; i += 1) {
    const { stdout } = await client.exec.get(execId, call);
    if (stdout.end === 6_888_900) break;
    await run(shell("sleep 0.05"));
  }
  const { stdout } = await client.exec.get(execId, call);
  assert.equal(stdout.end, 6_888_900);
  assert.ok(stdout.start > 5_000_000);
  await assert.rejects(client.exec.attach(execId, { stdout: 0 }, call), { code: "EXEC_OUTPUT_LOST" });
  await client.exec.remove(execId, call);
});

test("execs are bounded, and removing makes room", async () => {
  for (const old of await client.exec.list(call)) await client.exec.remove(old.execId, call);
  const ids: string[] = [];
  for (let i = 0; i < 256; i += 1) ids.push((await client.exec.start({ execId: newExecId(), argv: shell("echo x") }, call)).execId);
  await assert.rejects(client.exec.start({ execId: newExecId(), argv: ["true"] }, call), { code: "EXEC_LIMIT" });
  assert.deepEqual(
    (await client.exec.list(call)).map((e) => e.execId),
    ids,
  );
  await client.exec.remove(ids[0] ?? "", call);
  await client.exec.start({ execId: newExecId(), argv: ["true"] }, call);
  for (const old of await client.exec.list(call)) await client.exec.remove(old.execId, call);
});

test("long arguments are shown as far as they fit", async () => {
  const execId = newExecId();
  const long = "\u0001ü".repeat(14_000);
  const started = await client.exec.start({ execId, argv: ["true", long, "last"] }, call);
  assert.ok(started.argv.length === 2 && long.startsWith(started.argv[1] ?? "?"));
  assert.equal((await client.exec.list(call)).find((e) => e.execId === execId)?.argv[0], "true");
  await client.exec.remove(execId, call);
});

test("a caller that gives up leaves the exec running", async () => {
  const execId = newExecId();
  const mine = new AbortController();
  const attachment = await client.exec.startAttached({ execId, argv: ["sleep", "60"] }, { signal: mine.signal });
  const reading = collectExec(attachment);
  mine.abort(new Error("enough"));
  await assert.rejects(reading, /enough/);
  assert.equal((await client.exec.get(execId, call)).state, "running");
  await client.exec.remove(execId, call);
});

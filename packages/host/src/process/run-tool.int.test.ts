import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { text } from "node:stream/consumers";
import { isPlatformError, type ErrorCode } from "@fluxvm/core";
import { systemClock } from "../clock/system-clock.ts";
import { runTool, spawnTool, type RunToolRequest } from "./run-tool.ts";

const signal = AbortSignal.timeout(60_000);
const sh = (script: string, more: Partial<RunToolRequest> = {}): RunToolRequest => ({
  command: "sh",
  args: ["-c", script],
  timeoutMs: 10_000,
  signal,
  ...more,
});

async function failsWith(request: RunToolRequest, code: ErrorCode, message: RegExp): Promise<void> {
  await assert.rejects(runTool(request), (error) => {
    assert.ok(isPlatformError(error, code), String(error));
    assert.match(error.message, message);
    return true;
  });
}

function countMarked(mark: string): number {
  return readdirSync("/proc").filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(mark);
    } catch {
      return false;
    }
  }).length;
}

async function untilNone(mark: string): Promise<void> {
  for (let i = 0; i < 400 && countMarked(mark) > 0; i += 1) await systemClock.sleep(5);
  assert.equal(countMarked(mark), 0);
}

test("input, output, lines, codes and a clean environment", async () => {
  const lines: string[] = [];
  const result = await runTool(
    sh("cat; echo err >&2; env; pwd; printf 'no end'; exit 3", {
      input: "in\n",
      env: { EXTRA: "x" },
      cwd: "/usr",
      okCodes: [3],
      onLine: (line, stream) => lines.push(`${stream}:${line}`),
    }),
  );
  assert.equal(result.code, 3);
  assert.ok(result.stdout.startsWith("in\n") && result.stdout.endsWith("/usr\nno end"));
  const names = result.stdout.split("\n").flatMap((line) => /^(\w+)=/.exec(line)?.[1] ?? []);
  assert.deepEqual(names.toSorted(), ["EXTRA", "LC_ALL", "PATH", "PWD"]);
  assert.equal(result.stderr, "err\n");
  for (const want of ["stdout:in", "stderr:err", "stdout:no end"]) assert.ok(lines.includes(want), want);
});

test("a failure holds the last lines; a missing program, folder or code is told apart", async () => {
  await failsWith(
    sh("for i in 1 2 3 4 5 6 7 8 9; do echo line $i >&2; done; exit 4"),
    "HOST_TOOL_FAILED",
    /exit code 4: line 5\nline 6\nline 7\nline 8\nline 9$/,
  );
  await failsWith(sh("kill -9 $$"), "HOST_TOOL_FAILED", /SIGKILL/);
  await failsWith({ ...sh(""), command: "fluxvm-no-such-tool" }, "HOST_TOOL_MISSING", /fluxvm-no-such-tool is not installed/);
  await failsWith(sh("true", { cwd: "/no/such/folder" }), "HOST_TOOL_FAILED", /Cannot start/);
});

test("time over, output over and an abort kill the whole group", async () => {
  const mark = `9871${process.pid}`;
  const script = `sleep ${mark} & sleep ${mark}`;
  await failsWith(sh(script, { timeoutMs: 100 }), "DEADLINE_EXCEEDED", /Timed out after 100 ms: sh/);
  await untilNone(mark);
  await failsWith(sh(`sleep ${mark} & cat /dev/zero`, { maxOutputBytes: 100_000 }), "HOST_TOOL_FAILED", /wrote more than 100000 bytes/);
  await untilNone(mark);
  const controller = new AbortController();
  const running = runTool(sh(script, { signal: controller.signal }));
  controller.abort(new Error("gave up"));
  await assert.rejects(running, /gave up/);
  await untilNone(mark);
  await assert.rejects(runTool(sh("true", { signal: controller.signal })), /gave up/);
});

test("a child left behind with the pipes open does not hold the caller", async () => {
  const mark = `9872${process.pid}`;
  const startedMs = systemClock.bootMs();
  const { stdout } = await runTool(sh(`sleep ${mark} & echo done`));
  assert.equal(stdout, "done\n");
  assert.ok(systemClock.bootMs() - startedMs < 5000);
  await untilNone(mark);
});

test("streams are piped with back-pressure, and a tool that ends early fails its reader's promise only", async () => {
  const first = spawnTool(sh("head -c 5000000 /dev/zero"));
  const second = spawnTool(sh("wc -c"));
  first.stdout.pipe(second.stdin);
  assert.equal((await text(second.stdout)).trim(), "5000000");
  await Promise.all([first.done, second.done]);
  const early = spawnTool(sh("exit 1"));
  early.stdin.write(Buffer.alloc(1 << 20));
  await assert.rejects(early.done, (error) => isPlatformError(error, "HOST_TOOL_FAILED"));
});

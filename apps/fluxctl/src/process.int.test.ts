/** The program as a process: exit codes, pipes that close, completion in real shells. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { createWorld } from "./testing/fake-world.ts";

const MAIN = `${import.meta.dirname}/main.ts`;

async function runProcess(
  words: readonly string[],
  env: Record<string, string>,
): Promise<{ code: number; stdout: string; stderr: string }> {
  return await new Promise((resolve) => {
    execFile(process.execPath, [MAIN, ...words], { env: { PATH: process.env["PATH"], ...env } }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr });
    });
  });
}

test("exit codes and output leave the process", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addVm("a");
  const env = { FLUXVM_SERVER: world.daemon.address };
  assert.deepEqual(await runProcess(["exec", "a", "fail", "42"], env), { code: 42, stdout: "", stderr: "it went wrong\n" });
  assert.equal((await runProcess(["vm", "get", "nope"], env)).code, 3);
  assert.equal((await runProcess(["nope"], env)).code, 2);
  const big = await runProcess(["exec", "a", "numbers", "20000"], env);
  assert.equal(big.stdout.length, Array.from({ length: 20_000 }, (_, i) => `${i}\n`).join("").length);
});

test("a reader that closes early ends the command in the guest too", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addVm("a");
  const child = spawn(process.execPath, [MAIN, "exec", "a", "numbers", "100000000"], {
    env: { FLUXVM_SERVER: world.daemon.address },
    stdio: ["ignore", "pipe", "pipe"],
  });
  await once(child.stdout, "data");
  child.stdout.destroy();
  const [code] = (await once(child, "exit")) as [number | null]; // the event's documented arguments
  assert.equal(code, 141);
  assert.equal(world.daemon.host.requireVm("a").execs.size, 0);
});

test("SIGINT reaches the command in the guest", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addVm("a");
  world.daemon.host.programs["waiter"] = async (guest) => {
    await guest.write("stdout", "ready\n");
    return { signal: await guest.nextSignal(), timed_out: false };
  };
  const child = spawn(process.execPath, [MAIN, "exec", "a", "waiter"], {
    env: { FLUXVM_SERVER: world.daemon.address },
    stdio: ["ignore", "pipe", "inherit"],
  });
  await once(child.stdout, "data");
  child.kill("SIGINT");
  const [code] = (await once(child, "exit")) as [number | null]; // the event's documented arguments
  assert.equal(code, 130);
});

for (const [how, end, code] of [
  ["ends", "exit 5\n", 5],
  ["is killed by a signal from elsewhere", undefined, 143],
] as const) {
  test(`a real terminal is raw while attached and whole again when the command ${how}`, async (t) => {
    const world = await createWorld(t);
    world.daemon.host.addVm("a");
    const inside = `stty rows 33 cols 77; ${process.execPath} ${MAIN} exec -it a sh; echo "code=$?"; stty -a`;
    const env = { PATH: process.env["PATH"], TERM: "vt100", SHELL: "/bin/sh", FLUXVM_SERVER: world.daemon.address };
    const terminal = spawn("script", ["-qfec", inside, "/dev/null"], { env, stdio: ["pipe", "pipe", "inherit"] });
    let output = "";
    const waitFor = async (wanted: string): Promise<void> => {
      while (!output.includes(wanted)) await once(terminal.stdout, "data");
    };
    terminal.stdout.on("data", (chunk: Buffer) => (output += chunk.toString("latin1")));
    await waitFor("$ ");
    terminal.stdin.write("size\r");
    await waitFor("33x77");
    if (end !== undefined) terminal.stdin.write(end);
    else for (const exec of world.daemon.host.requireVm("a").execs.values()) exec.end({ signal: "SIGTERM", timed_out: false });
    await once(terminal, "close");
    assert.match(output, new RegExp(`code=${code}\\b[^]* icanon[^]* echo `));
  });
}

test("bash completes words, options and names with the script", async (t) => {
  const world = await createWorld(t);
  const script = join(world.directory, "completion.bash");
  await writeFile(script, (await world.run("completion", "bash")).stdout);
  const complete = async (...words: string[]): Promise<string[]> => {
    const line = words.map((word) => `'${word}'`).join(" ");
    const body = `fluxctl() { echo web; echo db; }; . ${script}; COMP_WORDS=(${line}); COMP_CWORD=$((\${#COMP_WORDS[@]} - 1)); _fluxctl; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const stdout = await new Promise<string>((resolve) => {
      execFile("bash", ["--norc", "-c", body], (error, stdout) => resolve(error === null ? stdout : error.message));
    });
    return stdout.trim().split("\n");
  };
  assert.deepEqual(await complete("fluxctl", "im"), ["image"]);
  assert.deepEqual(await complete("fluxctl", "vm", "re"), ["restart", "resume"]);
  assert.deepEqual(await complete("fluxctl", "vm", "stop", ""), ["web", "db"]);
  assert.deepEqual(await complete("fluxctl", "exec", "w"), ["web"]);
  assert.deepEqual(await complete("fluxctl", "vm", "create", "--fo"), ["--forward"]);
  assert.deepEqual(await complete("fluxctl", "--qu"), ["--quiet"]);
});

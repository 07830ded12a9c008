/** The daemon as a process: starting, listeners, token, lock, stopping, dying, and every way it refuses to start. */
import { strict as assert } from "node:assert";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { request, type IncomingMessage } from "node:http";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { setTimeout as delay } from "node:timers/promises";

const MAIN = join(import.meta.dirname, "main.ts");

interface Process {
  readonly child: ChildProcess;
  readonly exited: Promise<number | string>;
  stderr(): string;
  stdout(): string;
}

interface World {
  readonly directory: string;
  readonly stateDir: string;
  readonly socket: string;
  start(args?: readonly string[], env?: Readonly<Record<string, string>>): Process;
  /** Started, and waited for. */
  serve(args?: readonly string[]): Promise<Process>;
}

function createWorld(t: TestContext): World {
  const directory = mkdtempSync(join(tmpdir(), "fluxvmd-"));
  const stateDir = join(directory, "state");
  const running = new Set<ChildProcess>();
  t.after(async () => {
    for (const child of running) {
      child.kill("SIGTERM");
      const timer = setTimeout(() => child.kill("SIGKILL"), 15_000);
      await once(child, "exit");
      clearTimeout(timer);
    }
    rmSync(directory, { recursive: true, force: true });
  });
  const start: World["start"] = (args = [], env = {}) => {
    const child = spawn(process.execPath, [MAIN, ...args], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { PATH: process.env["PATH"], ...env },
    });
    running.add(child);
    const output = { stdout: "", stderr: "" };
    child.stdout.on("data", (chunk: Buffer) => (output.stdout += chunk.toString()));
    child.stderr.on("data", (chunk: Buffer) => (output.stderr += chunk.toString()));
    const exited = new Promise<number | string>((resolve) => {
      child.once("close", (code, signal) => {
        running.delete(child);
        resolve(code ?? signal ?? "unknown");
      });
    });
    return { child, exited, stderr: () => output.stderr, stdout: () => output.stdout };
  };
  const serve: World["serve"] = async (args = []) => {
    const daemon = start(["serve", "--state-dir", stateDir, "--listen", "", ...args]);
    while (!daemon.stderr().includes('"msg":"ready"')) {
      if (daemon.child.exitCode !== null) throw new Error(daemon.stderr());
      await delay(10);
    }
    return daemon;
  };
  return { directory, stateDir, socket: join(stateDir, "run", "fluxvm.sock"), start, serve };
}

async function ask(socketPath: string, path: string): Promise<{ readonly status: number; readonly body: Record<string, unknown> }> {
  const sent = request({ socketPath, path });
  sent.end();
  const [reply] = (await once(sent, "response")) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of reply) chunks.push(chunk as Buffer);
  return { status: reply.statusCode ?? 0, body: JSON.parse(Buffer.concat(chunks).toString()) as Record<string, unknown> };
}

test("it starts on an empty directory, answers, and keeps its secrets to itself", async (t) => {
  const world = createWorld(t);
  await world.serve();
  assert.deepEqual(await ask(world.socket, "/healthz"), { status: 200, body: { ok: true } });
  const ready = await ask(world.socket, "/readyz");
  assert.equal(ready.status, 200, JSON.stringify(ready.body));
  const instance = readFileSync(join(world.stateDir, "instance"), "utf8").trim();
  assert.equal((await ask(world.socket, "/v1/version")).body["instance_id"], instance);
  const mode = (path: string): number => statSync(path).mode & 0o777;
  assert.deepEqual([mode(world.stateDir), mode(join(world.stateDir, "token")), mode(world.socket)], [0o700, 0o600, 0o660]);
});

test("over TCP the token works, another does not", async (t) => {
  const world = createWorld(t);
  const daemon = await world.serve(["--listen", "127.0.0.1:0"]);
  const port = /"port":(\d+),"msg":"listening on tcp"/.exec(daemon.stderr())?.[1];
  const url = `http://127.0.0.1:${port}/v1/version`;
  const token = readFileSync(join(world.stateDir, "token"), "utf8").trim();
  assert.equal((await fetch(url)).status, 401);
  assert.equal((await fetch(url, { headers: { authorization: "Bearer wrong" } })).status, 401);
  assert.equal((await fetch(url, { headers: { authorization: `Bearer ${token}` } })).status, 200);
  assert.equal((await fetch(`http://127.0.0.1:${port}/healthz`)).status, 200);
  assert.doesNotMatch(daemon.stderr(), new RegExp(token));
});

test("a second daemon on the same state directory is refused at once; the first goes on", async (t) => {
  const world = createWorld(t);
  await world.serve();
  const second = world.start(["serve", "--state-dir", world.stateDir, "--listen", "", "--socket", join(world.directory, "other.sock")]);
  assert.equal(await second.exited, 4);
  assert.match(second.stderr(), /^fluxvmd: .*(another|other) daemon/i);
  assert.equal(second.stderr().trim().split("\n").length, 1);
  assert.equal((await ask(world.socket, "/healthz")).status, 200);
});

test("a socket that somebody answers on is left alone; one nobody answers on is taken over; a file is not", async (t) => {
  const world = createWorld(t);
  const socket = join(world.directory, "api.sock");
  const other = createServer();
  other.listen(socket);
  await once(other, "listening");
  const refused = world.start(["serve", "--state-dir", world.stateDir, "--listen", "", "--socket", socket]);
  assert.equal(await refused.exited, 4);
  assert.match(refused.stderr(), /another daemon does/);
  other.close();
  await once(other, "close");
  writeFileSync(socket, "precious");
  const blocked = world.start(["serve", "--state-dir", world.stateDir, "--listen", "", "--socket", socket]);
  assert.equal(await blocked.exited, 4);
  assert.equal(readFileSync(socket, "utf8"), "precious");
});

test("SIGTERM stops gracefully: exit code 0, the socket is gone, and it starts again as the same instance", async (t) => {
  const world = createWorld(t);
  const first = await world.serve();
  const { body } = await ask(world.socket, "/v1/version");
  first.child.kill("SIGTERM");
  assert.equal(await first.exited, 0);
  assert.match(first.stderr(), /"msg":"stopped"/);
  assert.equal(existsSync(world.socket), false);
  await world.serve();
  assert.equal((await ask(world.socket, "/v1/version")).body["instance_id"], body["instance_id"]);
});

test("kill -9 leaves nothing that keeps the next one from starting", async (t) => {
  const world = createWorld(t);
  const first = await world.serve();
  const token = readFileSync(join(world.stateDir, "token"), "utf8");
  first.child.kill("SIGKILL");
  assert.equal(await first.exited, "SIGKILL");
  assert.equal(existsSync(world.socket), true);
  await world.serve();
  assert.equal((await ask(world.socket, "/readyz")).status, 200);
  assert.equal(readFileSync(join(world.stateDir, "token"), "utf8"), token);
});

test("a request under way is finished before the daemon goes; a second signal does not wait", async (t) => {
  const world = createWorld(t);
  const daemon = await world.serve(["--api-stop-timeout-ms", "60000"]);
  const open = request({
    socketPath: world.socket,
    path: "/v1/kernels",
    method: "POST",
    headers: { "content-type": "application/json", "content-length": 50 },
  });
  open.on("error", () => undefined);
  open.write("{");
  await delay(100);
  daemon.child.kill("SIGTERM");
  await delay(300);
  assert.equal(daemon.child.exitCode, null, "it waits for the request");
  daemon.child.kill("SIGTERM");
  assert.equal(await daemon.exited, 130);
  // What it had no time for, the firewall table above all, the next one finds and takes away when it stops.
  const next = await world.serve();
  next.child.kill("SIGTERM");
  assert.equal(await next.exited, 0);
});

for (const [name, args, code, pattern] of [
  ["an unknown command", ["dance"], 2, /Unknown command "dance"/],
  ["an unknown flag", ["serve", "--state-dri", "/x"], 2, /did you mean --state-dir/],
  ["a wrong value", ["serve", "--vm-max-vcpus", "many"], 2, /"vm.max_vcpus" must be a whole number/],
  ["a bad address", ["serve", "--listen", "localhost"], 2, /"listen" must be like/],
  ["a config file that is not there", ["serve", "--config", "/nowhere.toml"], 3, /nowhere.toml cannot be read/],
  ["a state directory that cannot be made", ["serve", "--state-dir", "/proc/fluxvm", "--listen", ""], 4, /Cannot use \/proc\/fluxvm/],
  ["a helper that is not there", ["serve", "--tools-host-helper", "/nowhere/helper"], 4, /fluxvm-host-helper/],
] as const) {
  test(`${name} is one clear line and the exit code of its class`, async (t) => {
    const world = createWorld(t);
    const failed = world.start(args);
    assert.equal(await failed.exited, code, failed.stderr());
    assert.match(failed.stderr(), pattern);
    assert.match(failed.stderr(), /^fluxvmd: [^\n]*\n$/);
  });
}

test("the config file comes from the environment too, and its mistakes name key and line", async (t) => {
  const world = createWorld(t);
  const path = join(world.directory, "config.toml");
  writeFileSync(path, "[vm]\nmemoryMb = 1\n");
  const failed = world.start(["serve"], { FLUXVM_CONFIG: path });
  assert.equal(await failed.exited, 2);
  assert.match(failed.stderr(), /unknown key "vm.memoryMb".*config.toml:2\)/);
});

test("a damaged token or instance file stops the start, and a port in use as well", async (t) => {
  const world = createWorld(t);
  mkdirSync(world.stateDir);
  writeFileSync(join(world.stateDir, "token"), "short\n");
  const token = world.start(["serve", "--state-dir", world.stateDir, "--listen", ""]);
  assert.equal(await token.exited, 4);
  assert.match(token.stderr(), /holds no token/);
  rmSync(join(world.stateDir, "token"));
  writeFileSync(join(world.stateDir, "instance"), "what\n");
  const instance = world.start(["serve", "--state-dir", world.stateDir, "--listen", ""]);
  assert.equal(await instance.exited, 4);
  assert.match(instance.stderr(), /"instance" is damaged/);
  rmSync(join(world.stateDir, "instance"));
  const taken = createServer();
  taken.listen(0, "127.0.0.1");
  await once(taken, "listening");
  t.after(() => taken.close());
  const { port } = taken.address() as { port: number }; // a TCP server has one
  const busy = world.start(["serve", "--state-dir", world.stateDir, "--listen", `127.0.0.1:${port}`]);
  assert.equal(await busy.exited, 4);
  assert.match(busy.stderr(), /another process does/);
  assert.equal(existsSync(world.socket), false, "what was opened before is closed");
});

test("doctor needs no daemon: a table, and JSON", { timeout: 180_000 }, async (t) => {
  const world = createWorld(t);
  mkdirSync(world.stateDir);
  const table = world.start(["doctor", "--state-dir", world.stateDir]);
  assert.equal(await table.exited, 0, table.stderr());
  assert.match(table.stdout(), /^CAPABILITY +STATUS +DETAIL\nkvm +(works|missing|broken) /);
  const json = world.start(["doctor", "--json", "--state-dir", world.stateDir]);
  assert.equal(await json.exited, 0);
  const report = JSON.parse(json.stdout()) as { capabilities: { name: string; status: string }[] };
  assert.ok(report.capabilities.some((c) => c.name === "qemu" && c.status === "works"));
});

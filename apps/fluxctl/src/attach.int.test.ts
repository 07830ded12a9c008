/** exec, attach, console and run: streams, signals, terminals and exit codes. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createWorld } from "./testing/fake-world.ts";

test("exec streams both outputs, ends with the command's code and leaves nothing in the guest", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addVm("a");
  const failed = await world.run("exec", "a", "--", "fail", "7");
  assert.deepEqual([failed.code, failed.stdout, failed.stderr], [7, "", "it went wrong\n"]);
  const echoed = await world.run("exec", "a", "echo", "--output", "-t", "--", "x");
  assert.deepEqual([echoed.code, echoed.stdout], [0, "--output -t -- x\n"]);
  assert.equal(world.daemon.host.requireVm("a").execs.size, 0);
  assert.equal(echoed.environment.leftovers, 0);
});

test("exec's options reach the request", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addVm("a");
  await world.run("exec", "-e", "A=1", "-e", "B=x=y", "-w", "/tmp", "-u", "1000:1000", "--timeout", "2m", "a", "true");
  const body = world.daemon.seen.find((request) => request.method === "POST" && request.path.endsWith("/execs"))?.body;
  assert.deepEqual(JSON.parse(body ?? ""), {
    command: ["true"],
    env: { A: "1", B: "x=y" },
    working_dir: "/tmp",
    user: "1000:1000",
    timeout_seconds: 120,
    stdin: false,
  });
});

test("piped input arrives whole, across a restart of the daemon", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addVm("a");
  const input = Buffer.from(Array.from({ length: 100_000 }, (_, i) => `${i}\n`).join(""));
  const { environment, code } = world.start({ stdin: input }, "exec", "-i", "a", "cat");
  await environment.stdout.waitFor("\n1000\n");
  await world.daemon.stop();
  await sleep(20);
  await world.daemon.start();
  assert.equal(await code, 0);
  assert.equal(environment.stdout.text, input.toString("latin1"));
  assert.match(environment.stderr.text, /lost the daemon; attaching again/);
});

test("without -i no input is taken", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addVm("a");
  const { environment, code } = world.start({}, "exec", "a", "sleep");
  environment.type("never read");
  await waitFor(() => (world.daemon.host.requireVm("a").execs.size === 1 ? true : undefined));
  environment.send("SIGTERM");
  assert.equal(await code, 128 + 15);
  assert.equal(environment.stdin.readableLength, "never read".length);
});

test("an interrupt is handed to the command; one that ignores several is killed", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addVm("a");
  world.daemon.host.programs["stubborn"] = async (process) => {
    await process.write("stdout", "ready\n");
    for (;;) await process.nextSignal();
  };
  const { environment, code } = world.start({}, "exec", "a", "stubborn");
  await environment.stdout.waitFor("ready");
  for (let i = 0; i < 4; i += 1) environment.send("SIGINT");
  assert.equal(await code, 130);
  assert.equal(world.daemon.host.requireVm("a").execs.size, 0);
});

test("a terminal goes raw, tells its size and is put back", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addVm("a");
  const { environment, code } = world.start({ isTty: true }, "exec", "-it", "a", "sh");
  await environment.stdout.waitFor("$ ");
  assert.deepEqual(environment.rawModes, [true]);
  environment.type("size\n");
  await environment.stdout.waitFor("30x100");
  environment.stdout.rows = 50;
  environment.stdout.emit("resize");
  environment.type("size\n");
  await environment.stdout.waitFor("50x100");
  environment.type("exit 3\n");
  assert.equal(await code, 3);
  assert.deepEqual(environment.rawModes, [true, false]);
  assert.equal(environment.leftovers, 0);
});

test("a terminal is put back when the command's VM is gone, and when the process is made to exit", async (t) => {
  const world = await createWorld(t);
  const vm = world.daemon.host.addVm("a");
  const { environment, code } = world.start({ isTty: true }, "exec", "-it", "a", "sh");
  await environment.stdout.waitFor("$ ");
  world.daemon.host.vms.delete(vm.view.id);
  world.daemon.dropExecConnections();
  assert.equal(await code, 3);
  assert.match(environment.stderr.text, /VM_NOT_FOUND/);
  assert.deepEqual(environment.rawModes, [true, false]);

  world.daemon.host.addVm("b");
  const second = world.start({ isTty: true }, "exec", "-it", "b", "sh");
  await second.environment.stdout.waitFor("$ ");
  assert.throws(() => second.environment.exit(9));
  assert.deepEqual(second.environment.rawModes, [true, false]);
  second.environment.type("exit 0\n");
  assert.equal(await second.code, 0);
});

test("-t without a terminal is refused", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addVm("a");
  const { code, stderr } = await world.run("exec", "-t", "a", "sh");
  assert.equal(code, 2);
  assert.match(stderr, /not a terminal/);
  assert.deepEqual(world.daemon.seen, []);
});

test("a detached command is attached to later", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addVm("a");
  const { stdout } = await world.run("exec", "--detach", "a", "numbers", "1000");
  const attached = await world.run("attach", "a", stdout.trim());
  assert.equal(attached.code, 0);
  assert.match(attached.stdout, /^0\n1\n2\n[^]*999\n$/);
  assert.equal((await world.run("attach", "a")).code, 3);
});

test("a stopped VM and an unknown program have errors of their own", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addVm("off", { state: "stopped" });
  world.daemon.host.addVm("a");
  assert.equal((await world.run("exec", "off", "true")).code, 4);
  assert.match((await world.run("exec", "a", "nonesuch")).stderr, /no such file in the guest \(EXEC_START_FAILED\)/);
});

test("console opens a shell", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addVm("a");
  const { code, stdout } = await world.runWith({ stdin: "hello\nexit 0\n" }, "console", "a");
  assert.equal(code, 0);
  assert.match(stdout, /^\$ /);
});

test("run imports what is missing, runs, hands the code on and deletes the VM", async (t) => {
  const world = await createWorld(t);
  const { code, stdout, stderr } = await world.run("run", "docker://tool", "--", "fail", "9");
  assert.deepEqual([code, stdout], [9, ""]);
  assert.match(stderr, /docker:\/\/tool: fetching[^]*docker:\/\/tool: ready[^]*importing debian:[a-z]+[^]*default: ready[^]*it went wrong/);
  assert.equal(world.daemon.host.vms.size, 0);
  const again = await world.run("run", "docker://tool", "--", "echo", "hi");
  assert.deepEqual([again.code, again.stdout, again.stderr], [0, "hi\n", ""]);
});

test("run uses the image's own command, environment and directory", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addKernel("default");
  const config = {
    entrypoint: ["echo"],
    cmd: ["default"],
    env: ["A=image", "B=image"],
    user: "app",
    working_dir: "/srv",
    stop_signal: "",
    labels: {},
  };
  world.daemon.host.addImage("tool", { config });
  assert.equal((await world.run("run", "tool")).stdout, "default\n");
  assert.equal((await world.run("run", "-e", "B=mine", "tool", "given", "-x")).stdout, "given -x\n");
  assert.equal((await world.run("run", "--entrypoint", "numbers", "tool", "2")).stdout, "0\n1\n");
  const bodies = world.daemon.seen
    .filter((request) => request.path.endsWith("/execs") && request.method === "POST")
    .map((request) => JSON.parse(request.body) as unknown);
  assert.deepEqual(bodies[1], {
    command: ["echo", "given", "-x"],
    env: { A: "image", B: "mine" },
    working_dir: "/srv",
    user: "app",
    stdin: true,
  });
});

test("run deletes the VM when interrupted at any time, and keeps it when asked", async (t) => {
  const world = await createWorld(t);
  world.daemon.host.addKernel("default");
  world.daemon.host.addImage("tool");
  const early = world.start({}, "run", "tool", "sleep");
  const gate = Promise.withResolvers<undefined>();
  world.daemon.host.createGate = gate.promise.then(() => undefined);
  await waitFor(() => world.daemon.seen.find((request) => request.method === "POST" && request.path === "/v1/vms"));
  early.environment.send("SIGINT");
  gate.resolve(undefined);
  assert.equal(await early.code, 130);

  const running = world.start({}, "run", "tool", "sleep");
  await waitFor(() => [...world.daemon.host.vms.values()].find((vm) => vm.execs.size > 0));
  running.environment.send("SIGINT");
  assert.equal(await running.code, 130);
  assert.equal(world.daemon.host.vms.size, 0);

  const kept = await world.run("run", "--keep", "--name", "mine", "tool", "true");
  assert.equal(kept.code, 0);
  assert.match(kept.stderr, /mine is kept/);
  assert.equal(world.daemon.host.vms.size, 1);
  const taken = await world.run("run", "--name", "mine", "tool", "true");
  assert.equal(taken.code, 4);
  assert.equal(world.daemon.host.vms.size, 1, "another's VM must not be deleted");
});

test("run refuses what is neither an image nor a source", async (t) => {
  const world = await createWorld(t);
  const { code, stderr } = await world.run("run", "nonesuch");
  assert.equal(code, 3);
  assert.match(stderr, /try docker:\/\/NAME or debian:SUITE/);
});

async function waitFor<T>(find: () => T | undefined): Promise<T> {
  for (let i = 0; i < 1000; i += 1) {
    const found = find();
    if (found !== undefined) return found;
    await sleep(5);
  }
  throw new Error("it did not come");
}

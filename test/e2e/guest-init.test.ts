/**
 * The agent as PID 1: what a program finds when it starts, and what the agent does for it while it runs and when it is
 * told to stop. One image, one VM, two boots: the second one with an init in the image that must not take over.
 */
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { isPlatformError, type FileEvent } from "@fluxvm/sdk";
import { ensureBusyboxLayout } from "../fixtures/artefacts.ts";
import { importImage, importKernel, startDaemon, type TestDaemon } from "../fixtures/daemon.ts";
import { bootVm, sh, shOutput } from "../fixtures/world.ts";

const VM = "guest-init";
/** Runs until its stop signal, then leaves a note that only a clean stop writes back. */
const WORKLOAD = 'trap "echo stopped by QUIT > /root/note; exit 0" QUIT; echo up; while :; do sleep 0.1; done';

describe("the agent as init", () => {
  let daemon: TestDaemon;
  let clockOffMs = Number.NaN;
  const releases: (() => Promise<void>)[] = [];
  const run = async (line: string): Promise<string> => await shOutput(daemon, VM, line);
  /** Waits in the guest until the line succeeds. */
  const until = async (line: string): Promise<void> => {
    const result = await sh(daemon, VM, `for i in $(seq 100); do ( ${line} ) >/dev/null 2>&1 && exit 0; sleep 0.1; done; exit 1`, 60);
    assert.equal(result.exit.code, 0, `never so: ${line}`);
  };

  before(async () => {
    daemon = await startDaemon({ after: (release) => releases.push(release as () => Promise<void>) });
    await importKernel(daemon);
    const settings = { entrypoint: ["/bin/sh", "-c"], cmd: [WORKLOAD], stopSignal: "SIGQUIT" };
    await importImage(daemon, ensureBusyboxLayout("guest-init", settings), "guest-init");
    await bootVm(daemon, {
      name: VM,
      image: "guest-init",
      init: "agent",
      memory_mib: 256,
      workload: {},
      cloud_init: { hostname: "box.example" },
    });
    // Before anything else, so that nothing but the boot can have set it. A file tells the time more finely than `date`.
    const { modified_at: guestTime } = await daemon.client.files.write(VM, "/run/clock", "");
    clockOffMs = Date.parse(guestTime) - Date.now();
  });
  after(async () => {
    for (const release of releases) await release();
  });

  it("has the right time from the start", () => {
    // A machine's own clock counts whole seconds.
    assert.ok(clockOffMs > -1500 && clockOffMs < 500, `the guest's clock was off by ${clockOffMs} ms`);
  });

  it("names the guest", async () => {
    assert.deepEqual(await run("hostname; cat /etc/hostname"), "box.example\nbox.example");
    const hosts = await run("cat /etc/hosts");
    assert.match(hosts, /^127\.0\.0\.1 localhost$/m);
    assert.match(hosts, /^::1 localhost /m);
    assert.match(hosts, /^10\.0\.2\.15 box\.example$/m);
  });

  it("mounts what programs expect, and nothing that lets them do more", async () => {
    const mounts = new Map(
      (await run("cat /proc/self/mounts")).split("\n").map((line) => {
        const [, target = "", kind, options = ""] = line.split(" ");
        return [target, { kind, options: options.split(",") }];
      }),
    );
    const kinds = {
      "/": "ext4",
      "/proc": "proc",
      "/sys": "sysfs",
      "/dev": "devtmpfs",
      "/dev/pts": "devpts",
      "/dev/shm": "tmpfs",
      "/run": "tmpfs",
    };
    for (const [target, kind] of Object.entries(kinds)) assert.equal(mounts.get(target)?.kind, kind, target);
    for (const target of ["/proc", "/sys", "/dev/shm", "/run"]) {
      assert.ok(mounts.get(target)?.options.includes("nosuid") && mounts.get(target)?.options.includes("nodev"), target);
    }
    assert.equal(await run("stat -c %a /dev/shm /tmp /run"), "1777\n1777\n755");
    assert.equal(await run("echo x > /dev/shm/x && echo y > /run/y && echo through | cat /dev/stdin /dev/fd/0"), "through");
  });

  it("configures the network without a client for it", async () => {
    const addresses = await run("ip -4 addr show");
    assert.match(addresses, /inet 127\.0\.0\.1\/8/);
    assert.match(addresses, /inet 10\.0\.2\.15\/24/);
    assert.match(await run("ip route"), /^default via 10\.0\.2\.2 dev \S+/m);
    assert.match(await run("cat /etc/resolv.conf"), /^nameserver 10\.0\.2\.3$/m);
    await run("nc -l -p 7 -e echo hi & sleep 0.2; nc 127.0.0.1 7 < /dev/null | grep hi");
  });

  it("loads the modules an image may want, after it has started", async () => {
    for (const name of ["virtio_rng", "virtio_balloon", "overlay", "fuse", "pvpanic_mmio"])
      await until(`grep -q live /sys/module/${name}/initstate`);
    assert.match(await run("cat /sys/class/misc/hw_random/rng_current"), /virtio_rng/);
    const overlay =
      "mkdir -p /run/o/l /run/o/u /run/o/w /run/o/m && mount -t overlay o -o lowerdir=/run/o/l,upperdir=/run/o/u,workdir=/run/o/w /run/o/m";
    assert.equal(await run(`${overlay} && echo z > /run/o/m/z && cat /run/o/u/z && umount /run/o/m`), "z");
  });

  it("reaps processes whose parent has gone", async () => {
    const parents = await run(
      "for i in $(seq 20); do sh -c 'sleep 1 & echo $! >> /tmp/orphans'; done; for p in $(cat /tmp/orphans); do grep PPid /proc/$p/status; done",
    );
    assert.deepEqual(new Set(parents.split("\n")), new Set(["PPid:\t1"]));
    await until("for p in $(cat /tmp/orphans); do [ ! -e /proc/$p ] || exit 1; done");
    assert.equal((await sh(daemon, VM, "grep -l '^State:.Z' /proc/[0-9]*/status")).stdout, "");
  });

  it("tells how a command ended: by itself, by a signal, by its time", async () => {
    const sleeper = await daemon.client.execs.start(VM, { command: ["sleep", "1000"] });
    await sleeper.signal("TERM");
    assert.deepEqual(await sleeper.exited, { signal: "SIGTERM", timed_out: false });
    const stubborn = await daemon.client.execs.start(VM, { command: ["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done"] });
    for await (const chunk of stubborn.output()) if (Buffer.from(chunk.data).toString().includes("deaf")) break;
    await stubborn.signal("TERM");
    await stubborn.signal("KILL");
    assert.deepEqual(await stubborn.exited, { signal: "SIGKILL", timed_out: false });
    const late = await daemon.client.agent.run(VM, { command: "echo before; sleep 1000 & echo $! > /tmp/late; wait", timeout_seconds: 1 });
    assert.equal(late.exit.timed_out, true);
    assert.equal(late.stdout, "before\n");
    await until("[ ! -e /proc/$(cat /tmp/late) ]"); // a shell's children go with it
    await assert.rejects(daemon.client.execs.start(VM, { command: ["/no/such/program"] }), (error) =>
      isPlatformError(error, "EXEC_START_FAILED"),
    );
  });

  it("runs commands as another user, with the groups that user is in", async () => {
    const as = async (user: string): Promise<string> => {
      const session = await daemon.client.execs.start(VM, {
        command: ["sh", "-c", "id -u; id -g; id -G; echo $HOME; touch /root/x"],
        user,
      });
      const { stdout, stderr, exit } = await session.collect();
      return `${stdout.toString()}${exit.code === 0 ? "" : stderr.toString()}`;
    };
    assert.match(await as("app"), /^1000\n1000\n1000 2000\n\/home\/app\n.*Permission denied/);
    assert.match(await as("1000:2000"), /^1000\n2000\n/);
    assert.match(await as("0"), /^0\n0\n/);
    await assert.rejects(as("nobody-here"), (error) => isPlatformError(error));
  });

  it("tells of changes in a directory", async () => {
    await run("mkdir -p /root/watched");
    const events: FileEvent[] = [];
    const stop = new AbortController();
    const watching = (async (): Promise<void> => {
      for await (const event of daemon.client.files.watch(VM, "/root/watched", {
        signal: AbortSignal.any([stop.signal, AbortSignal.timeout(30_000)]),
      })) {
        events.push(event);
        if (event.type === "removed" && event.name === "new") return;
      }
    })();
    // The watch is there once something is seen.
    while (events.length === 0) await run("touch /root/watched/first; sleep 0.1");
    await run("cd /root/watched && echo 1 > new && mv new newer && mv newer new && rm new");
    await watching;
    const ofNew = events.filter(({ name }) => name === "new" || name === "newer").map(({ type, name }) => `${type} ${name}`);
    assert.deepEqual(
      ofNew.filter((event) => !event.startsWith("modified") && !event.startsWith("attributes")),
      ["created new", "moved_from new", "moved_to newer", "moved_from newer", "moved_to new", "removed new"],
    );
    stop.abort();
  });

  it("runs 64 commands at once, and mixes nothing up", async () => {
    const listIds = async (): Promise<readonly string[]> => (await daemon.client.execs.list(VM)).map(({ id }) => id).sort();
    const before = await listIds();
    const commands = Array.from({ length: 64 }, (_, i) => `read x < /dev/null; echo out ${i}; echo err ${i} >&2; sleep 0.3; exit ${i}`);
    const results = await Promise.all(commands.map(async (line) => await sh(daemon, VM, line, 60)));
    for (const [i, { stdout, stderr, exit }] of results.entries()) {
      assert.deepEqual([stdout, stderr, exit.code], [`out ${i}\n`, `err ${i}\n`, i]);
    }
    assert.deepEqual(await listIds(), before);
  });

  it("gives the image's program its own stop signal, and stays PID 1 where the image has an init", async () => {
    assert.equal((await daemon.client.execs.get(VM, "workload")).state, "running");
    await run(
      "printf '#!/bin/sh\\necho taken > /root/taken; exec sleep 1000000\\n' > /bin/own-init && chmod 755 /bin/own-init && mkdir -p /sbin && ln -s /bin/own-init /sbin/init",
    );
    await daemon.client.vms.restart(VM, {}, { ready: "exec" });
    assert.equal(await run("cat /root/note"), "stopped by QUIT");
    assert.equal(await run("ls /sbin/init /root/taken 2>/dev/null || true"), "/sbin/init");
    assert.doesNotMatch(await run("cat /proc/1/cmdline"), /own-init/);
    assert.equal((await daemon.client.execs.get(VM, "workload")).state, "running");
  });
});

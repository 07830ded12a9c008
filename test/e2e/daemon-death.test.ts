/** VMs survive their daemon, and no byte of an exec's output is lost or repeated. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { it } from "node:test";
import { findLeftovers } from "../../tools/quickstart/leftovers.ts";
import { bootVm, shOutput, startWorld } from "../fixtures/world.ts";

it("adopts every VM after kill -9: exec works, TTL counts, names and disks are kept", async (t) => {
  const daemon = await startWorld(t);
  const first = await bootVm(daemon, { name: "one" });
  const second = await bootVm(daemon, { name: "two", ttl_seconds: 3600 });
  const bootId = await shOutput(daemon, "one", "cat /proc/sys/kernel/random/boot_id");
  await daemon.client.vms.pause("two");
  await daemon.kill();
  process.kill(first.pid ?? 0, 0); // throws when the VM died with its daemon
  await daemon.start();
  assert.equal(await shOutput(daemon, "one", "cat /proc/sys/kernel/random/boot_id"), bootId);
  const adopted = await daemon.client.vms.get("two");
  assert.deepEqual([adopted.state, adopted.pid, adopted.expires_at], ["paused", second.pid, second.expires_at]);
  await daemon.client.vms.resume("two");
  await daemon.stop(); // a graceful end leaves them running as well
  process.kill(first.pid ?? 0, 0);
  await daemon.start();
  assert.equal((await daemon.client.vms.get("one")).pid, first.pid);
  assert.equal(await shOutput(daemon, "two", "echo alive"), "alive");
  await daemon.client.vms.patch("two", { ttl_seconds: 3 });
  await daemon.kill();
  await daemon.start();
  await daemon.client.vms.wait("two", ["gone"], { timeoutSeconds: 30 });
  await daemon.client.vms.delete("one");
  assert.deepEqual(findLeftovers(daemon.stateDir), []);
});

it("notices a VM that was killed and says so", async (t) => {
  const daemon = await startWorld(t);
  const vm = await bootVm(daemon, { name: "victim" });
  process.kill(vm.pid ?? 0, "SIGKILL");
  const seen = await daemon.client.vms.wait("victim", ["failed", "stopped"], { timeoutSeconds: 10 });
  assert.equal(seen?.state, "failed");
  assert.match(seen?.reason ?? "", /killed|crashed/);
  await daemon.client.vms.start("victim", { ready: "exec" });
  assert.equal(await shOutput(daemon, "victim", "echo again"), "again");
});

it("delivers 100 MB of numbered output byte for byte across 50 daemon kills", async (t) => {
  const daemon = await startWorld(t);
  await bootVm(daemon, { name: "talker", memory_mib: 256 });
  const lines = 11_200_000; // of 9 bytes each: 100 MB
  const session = await daemon.client.execs.start("talker", { command: ["seq", "-w", "1", String(lines)] }, { reconnectMs: 120_000 });
  const hash = createHash("sha256");
  let received = 0;
  let kills = 0;
  let nextKillAt = 1_000_000;
  let killing: Promise<void> | undefined;
  for await (const chunk of session.output()) {
    assert.equal(chunk.stream, "stdout");
    assert.equal(chunk.offset, received);
    hash.update(chunk.data);
    received += chunk.data.byteLength;
    if (kills < 50 && received >= nextKillAt && killing === undefined) {
      kills += 1;
      nextKillAt = received + 1_500_000;
      killing = daemon
        .kill()
        .then(async () => await daemon.start())
        .finally(() => (killing = undefined));
    }
  }
  await killing;
  assert.deepEqual(await session.exited.then((exit) => exit.code), 0);
  assert.equal(received, lines * 9);
  assert.equal(kills, 50);
  const expected = createHash("sha256");
  for (let i = 1; i <= lines; i += 1) expected.update(`${String(i).padStart(8, "0")}\n`);
  assert.equal(hash.digest("hex"), expected.digest("hex"));
});

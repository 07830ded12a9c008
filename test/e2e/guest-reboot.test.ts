/** A guest that reboots, or is restarted, comes back, on its disk and with its time to live; one whose kernel panics, or that resets for ever, does not. */
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import type { TestDaemon } from "../fixtures/daemon.ts";
import { BOOT_TIMEOUT_MS, bootVm, sh, shOutput, startWorld } from "../fixtures/world.ts";

const BOOT_ID = "cat /proc/sys/kernel/random/boot_id";

describe("a guest that reboots", () => {
  let daemon: TestDaemon;
  const releases: (() => Promise<void>)[] = [];
  before(async () => {
    daemon = await startWorld({ after: (release) => releases.push(release as () => Promise<void>) });
  });
  after(async () => {
    for (const release of releases) await release();
  });

  /** Runs the line, which ends the guest, and waits until a guest with another boot id answers. */
  const reboot = async (vm: string, line: string): Promise<void> => {
    const before = await shOutput(daemon, vm, BOOT_ID);
    await daemon.client.execs.start(vm, { command: ["sh", "-c", line] });
    const end = Date.now() + BOOT_TIMEOUT_MS;
    for (let now = before; now === before;) {
      assert.ok(Date.now() < end, `no reboot by "${line}"`);
      // Between two guests nobody answers.
      now = await sh(daemon, vm, BOOT_ID, 5).then(
        (result) => (result.exit.code === 0 ? result.stdout.trim() : before),
        () => before,
      );
    }
  };

  it("comes back by its own reboot -f and by an orderly reboot, as the same VM on the same disk", async () => {
    const first = await bootVm(daemon, { name: "again", ttl_seconds: 3600 });
    await shOutput(daemon, "again", "echo kept > /root/kept; sync");
    await reboot("again", "reboot -f");
    const second = await daemon.client.vms.get("again");
    assert.equal(second.state, "running");
    assert.equal(await shOutput(daemon, "again", "cat /root/kept"), "kept");
    assert.deepEqual([second.id, second.expires_at], [first.id, first.expires_at]);
    assert.notEqual(second.pid, first.pid);
    const clock = Number(await shOutput(daemon, "again", "date +%s"));
    assert.ok(Math.abs(clock - Date.now() / 1000) < 3, `the guest's clock is off by ${clock - Date.now() / 1000} s`);
    // Busybox asks init, which writes back what nobody synced.
    await shOutput(daemon, "again", "echo unsynced > /root/unsynced");
    await reboot("again", "reboot");
    assert.equal(await shOutput(daemon, "again", "cat /root/unsynced"), "unsynced");
  });

  it("is restarted by request without losing what nobody synced, also while it is still starting", async () => {
    await shOutput(daemon, "again", "head -c 2000000 /dev/urandom > /root/big; sha256sum /root/big > /root/sum");
    await daemon.client.vms.restart("again"); // answers once the next one runs: it is still starting then
    const started = Date.now();
    await daemon.client.vms.restart("again", {}, { ready: "exec" });
    assert.ok(Date.now() - started < BOOT_TIMEOUT_MS);
    assert.match(await shOutput(daemon, "again", "sha256sum -c /root/sum"), /OK/);
    let console = "";
    for await (const chunk of daemon.client.vms.logs("again", { lines: 1000 })) console += Buffer.from(chunk).toString();
    // Both ended by their own power-off, none was killed; before them only resets.
    assert.equal(console.match(/fluxvm-agent: powering off/g)?.length, 2);
  });

  it("stays off by its own poweroff", async () => {
    await daemon.client.execs.start("again", { command: ["poweroff"] });
    const seen = await daemon.client.vms.wait("again", ["stopped", "failed"], { timeoutSeconds: 30 });
    assert.deepEqual([seen?.state, seen?.reason], ["stopped", "guest_shutdown"]);
  });

  it("fails when its kernel panics, and says so", async () => {
    await daemon.client.vms.start("again", { ready: "exec" });
    await shOutput(daemon, "again", "until grep -qs live /sys/module/pvpanic_mmio/initstate; do sleep 0.1; done");
    await daemon.client.execs.start("again", { command: ["sh", "-c", "echo c > /proc/sysrq-trigger"] });
    const seen = await daemon.client.vms.wait("again", ["stopped", "failed"], { timeoutSeconds: 30 });
    assert.deepEqual([seen?.state, seen?.reason], ["failed", "guest_panic"]);
    await daemon.client.vms.delete("again");
  });

  it("fails when it resets again and again without coming up", async () => {
    // Without its root nothing runs: the kernel panics before any driver can tell, and `panic=-1` resets.
    await daemon.client.vms.create({ name: "loop", image: "busybox", memory_mib: 192, kernel_args: "rdinit=/nothing root=/dev/none" });
    const seen = await daemon.client.vms.wait("loop", ["stopped", "failed"], { timeoutSeconds: 90 });
    assert.deepEqual([seen?.state, seen?.reason], ["failed", "reset_loop"]);
    const restarts = daemon.log.split("\n").filter((line) => line.includes('"from":"running","to":"starting"') && line.includes("loop"));
    assert.equal(restarts.length, 5);
    await daemon.client.vms.delete("loop");
  });
});

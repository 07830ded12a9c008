/** An image becomes a running VM, is used, and expires. */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { after, before, describe, it } from "node:test";
import { isPlatformError } from "@fluxvm/sdk";
import { findLeftovers } from "../../tools/quickstart/leftovers.ts";
import type { TestDaemon } from "../fixtures/daemon.ts";
import { bootVm, sh, shOutput, startWorld } from "../fixtures/world.ts";

describe("the main journey", () => {
  let daemon: TestDaemon;
  const releases: (() => Promise<void>)[] = [];
  before(async () => {
    daemon = await startWorld({ after: (release) => releases.push(release as () => Promise<void>) });
  });
  after(async () => {
    for (const release of releases) await release();
  });

  it("boots to the first command and tells where the time went", async () => {
    const vm = await bootVm(daemon, { name: "journey", labels: { tier: "test" } });
    assert.equal(vm.state, "running");
    assert.equal(vm.agent.state, "ready");
    assert.ok(vm.phases !== undefined && vm.first_command_ms !== undefined);
    assert.ok(vm.phases.create_done_ms > 0 && vm.phases.agent_wait_ms > 0 && vm.phases.first_exec_ms > 0);
    const result = await sh(daemon, "journey", "echo out; echo err >&2; exit 7");
    assert.deepEqual([result.stdout, result.stderr, result.exit.code], ["out\n", "err\n", 7]);
  });

  it("streams output while the command runs and takes its standard input", async () => {
    const session = await daemon.client.execs.start("journey", { command: ["cat"], stdin: true });
    await session.writeStdin("first\n");
    const seen: string[] = [];
    for await (const chunk of session.output()) {
      seen.push(Buffer.from(chunk.data).toString());
      if (seen.join("") === "first\n") {
        await session.writeStdin("second\n");
        session.endStdin();
      }
    }
    assert.equal(seen.join(""), "first\nsecond\n");
    assert.equal((await session.exited).code, 0);
  });

  it("has a terminal that can be resized", async () => {
    const session = await daemon.client.execs.start("journey", {
      command: ["sh", "-c", "stty size; read x; stty size"],
      stdin: true,
      tty: { rows: 24, cols: 80 },
    });
    let text = "";
    for await (const chunk of session.output()) {
      text += Buffer.from(chunk.data).toString();
      if (text.includes("24 80") && !text.includes("40 120")) {
        session.resize({ rows: 40, cols: 120 });
        await session.writeStdin("\n");
      }
    }
    assert.match(text, /24 80[\s\S]*40 120/);
  });

  it("copies 32 MiB in and out, byte for byte", async () => {
    const content = randomBytes(32 * 1024 * 1024);
    const stat = await daemon.client.files.write("journey", "/root/deep/er/data.bin", content, { parents: true, mode: 0o640 });
    assert.equal(stat.size, content.length);
    assert.equal(
      await shOutput(daemon, "journey", "sha256sum < /root/deep/er/data.bin"),
      `${createHash("sha256").update(content).digest("hex")}  -`,
    );
    const hash = createHash("sha256");
    const file = await daemon.client.files.read("journey", "/root/deep/er/data.bin");
    for await (const chunk of file.content) hash.update(chunk as Buffer);
    assert.equal(hash.digest("hex"), createHash("sha256").update(content).digest("hex"));
    assert.equal(file.stat.mode & 0o777, 0o640);
  });

  it("gives the root file system the size asked for", async () => {
    const vm = await bootVm(daemon, { name: "grown", disk_size_gib: 3 });
    assert.equal(vm.disk_bytes, 3 * 1024 ** 3);
    const kib = Number(await shOutput(daemon, "grown", "df -k / | tail -1 | awk '{print $2}'"));
    assert.ok(kib > 2.7 * 1024 * 1024 && kib < 3 * 1024 * 1024, `df says ${kib} KiB`);
    await daemon.client.vms.delete("grown");
  });

  it("lists by label, patches, and refuses a name that is taken", async () => {
    assert.equal((await daemon.client.vms.list({ label: "tier=test" })).length, 1);
    assert.equal((await daemon.client.vms.list({ label: "tier!=test" })).length, 0);
    const patched = await daemon.client.vms.patch("journey", { labels: { tier: null, stage: "late" } });
    assert.deepEqual(patched.labels, { stage: "late" });
    await assert.rejects(bootVm(daemon, { name: "journey" }), (error) => isPlatformError(error, "VM_NAME_TAKEN"));
  });

  it("pauses and resumes with the right clock", async () => {
    await daemon.client.vms.pause("journey");
    assert.equal((await daemon.client.vms.get("journey")).state, "paused");
    await new Promise((resolve) => setTimeout(resolve, 3000));
    await daemon.client.vms.resume("journey");
    const guestSeconds = Number(await shOutput(daemon, "journey", "date +%s"));
    assert.ok(Math.abs(guestSeconds - Date.now() / 1000) < 2, `guest clock is off by ${guestSeconds - Date.now() / 1000} s`);
  });

  it("stops gracefully, keeps the disk, starts again and restarts", async () => {
    await shOutput(daemon, "journey", "echo kept > /root/kept; sync");
    const stopped = await daemon.client.vms.stop("journey");
    assert.equal(stopped.state, "stopped");
    assert.equal(stopped.pid, undefined);
    await daemon.client.vms.start("journey", { ready: "exec" });
    assert.equal(await shOutput(daemon, "journey", "cat /root/kept"), "kept");
    const before = await shOutput(daemon, "journey", "cat /proc/sys/kernel/random/boot_id");
    await daemon.client.vms.restart("journey", {}, { ready: "exec" });
    assert.notEqual(await shOutput(daemon, "journey", "cat /proc/sys/kernel/random/boot_id"), before);
  });

  it("shows the console", async () => {
    let text = "";
    for await (const chunk of daemon.client.vms.logs("journey", { lines: 500 })) text += Buffer.from(chunk).toString();
    assert.match(text, /reboot: Power down/);
  });

  it("runs under a user of its own, with QEMU's sandbox on", async () => {
    const { pid } = await daemon.client.vms.get("journey");
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    assert.match(status, /^Seccomp:\t2$/m);
    assert.match(status, /^NoNewPrivs:\t1$/m);
    assert.match(status, /^Uid:\t2\d{6}\t/m);
    assert.match(status, /^CapEff:\t0+$/m);
  });

  it("expires, and leaves nothing behind", async () => {
    const before = await daemon.client.vms.patch("journey", { ttl_seconds: 2 });
    assert.ok(before.expires_at !== undefined);
    assert.equal(await daemon.client.vms.wait("journey", ["gone"], { timeoutSeconds: 30 }), undefined);
    assert.deepEqual(findLeftovers(daemon.stateDir), []);
    await assert.rejects(daemon.client.vms.get("journey"), (error) => isPlatformError(error, "VM_NOT_FOUND"));
  });

  it("will not delete an image or kernel in use, and will when it is free", async () => {
    const vm = await bootVm(daemon, { name: "holder" });
    await assert.rejects(daemon.client.images.delete("busybox"), (error) => isPlatformError(error, "IMAGE_IN_USE"));
    await assert.rejects(daemon.client.kernels.delete("test-kernel"), (error) => isPlatformError(error, "KERNEL_IN_USE"));
    assert.deepEqual((await daemon.client.images.get("busybox")).used_by, [vm.id]);
    await daemon.client.vms.delete("holder");
    await daemon.client.images.delete("busybox");
    await assert.rejects(daemon.client.images.get("busybox"), (error) => isPlatformError(error, "IMAGE_NOT_FOUND"));
  });
});

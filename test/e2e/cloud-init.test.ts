/** A Debian system image, systemd and cloud-init included, gets its user, key, file and host name from the seed. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { it } from "node:test";
import { importKernel, startDaemon } from "../fixtures/daemon.ts";
import { sh, shOutput } from "../fixtures/world.ts";

const KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJb0mCJbVbI5pFbZxYQ0m8mC9Xl0yqN6m1s0jT8u7a3K tester@example";

it("boots systemd with the agent as a service and cloud-init finds its seed", { timeout: 900_000 }, async (t) => {
  const daemon = await startDaemon(t);
  await importKernel(daemon);
  const suite = /^VERSION_CODENAME=(\w+)/m.exec(readFileSync("/etc/os-release", "utf8"))?.[1] ?? "bookworm"; // the suite of this host
  const image = await daemon.client.images.create({ source: `debian:${suite}+systemd-sysv,cloud-init,sudo`, name: "system" });
  const imported = await daemon.client.images.wait(image.id, { timeoutSeconds: 600 });
  assert.equal(imported.state, "ready", imported.error?.message ?? "no error given");
  await daemon.client.vms.create(
    {
      name: "system",
      image: "system",
      memory_mib: 768,
      network: { mode: "user" },
      cloud_init: {
        hostname: "orchard",
        user: "gardener",
        ssh_authorized_keys: [KEY],
        write_files: [{ path: "/etc/orchard.conf", content: "apples = 12\n", permissions: "0640" }],
        runcmd: ["touch /run/cloud-init-ran"],
      },
    },
    { ready: "exec", signal: AbortSignal.timeout(180_000) },
  );
  assert.equal(await shOutput(daemon, "system", "cat /proc/1/comm"), "systemd");
  const done = await sh(daemon, "system", "cloud-init status --wait", 300);
  assert.match(done.stdout, /status: done/, done.stdout + done.stderr);
  assert.equal(await shOutput(daemon, "system", "hostname"), "orchard");
  assert.equal(await shOutput(daemon, "system", "cat /etc/orchard.conf"), "apples = 12");
  assert.equal(await shOutput(daemon, "system", "stat -c %a /etc/orchard.conf"), "640");
  assert.equal(await shOutput(daemon, "system", "cat /home/gardener/.ssh/authorized_keys"), KEY);
  assert.match(await shOutput(daemon, "system", "id gardener"), /gardener/);
  assert.equal(await shOutput(daemon, "system", "ls /run/cloud-init-ran"), "/run/cloud-init-ran");
  assert.match(await shOutput(daemon, "system", "cloud-init query platform; cloud-init query subplatform"), /nocloud/i);
  assert.match(await shOutput(daemon, "system", "systemctl is-active fluxvm-guest-agent"), /^active$/);
  const stopped = await daemon.client.vms.stop("system", { timeout_seconds: 60 });
  assert.equal(stopped.reason, "guest_shutdown");
});

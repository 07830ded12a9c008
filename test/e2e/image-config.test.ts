/** What an OCI image says of its process is honoured, and a request can change it. */
import assert from "node:assert/strict";
import { it } from "node:test";
import { ensureBusyboxLayout } from "../fixtures/artefacts.ts";
import { importImage, importKernel, startDaemon } from "../fixtures/daemon.ts";
import { shOutput } from "../fixtures/world.ts";

it("runs the image's entrypoint as its user, in its directory, with its environment, and reports its end", async (t) => {
  const daemon = await startDaemon(t);
  await importKernel(daemon);
  const layout = ensureBusyboxLayout("configured", {
    entrypoint: ["/bin/sh", "-c"],
    cmd: ['echo "user=$(id -u):$(id -g) groups=$(id -G) dir=$(pwd) colour=$COLOUR pid1=$(cat /proc/1/comm)"; echo oops >&2; exit 3'],
    env: ["COLOUR=green", "PATH=/bin"],
    user: "app",
    workingDir: "/home/app",
  });
  await importImage(daemon, layout, "configured");
  const image = await daemon.client.images.get("configured");
  assert.equal(image.config?.user, "app");
  await daemon.client.vms.create({ name: "worker", image: "configured", memory_mib: 192 });
  const session = daemon.client.execs.attach("worker", "workload", { reconnectMs: 90_000 });
  const result = await session.collect();
  assert.match(result.stdout.toString(), /^user=1000:1000 groups=1000 2000 dir=\/home\/app colour=green/);
  assert.equal(result.stderr.toString(), "oops\n");
  assert.equal(result.exit.code, 3);
  await daemon.client.vms.delete("worker");

  await daemon.client.vms.create({
    name: "changed",
    image: "configured",
    memory_mib: 192,
    workload: { command: ['echo "$COLOUR $SHAPE $(id -u) $(pwd)"'], env: { SHAPE: "round" }, user: "0", working_dir: "/tmp" },
  });
  const changed = await daemon.client.execs.attach("changed", "workload", { reconnectMs: 90_000 }).collect();
  assert.equal(changed.stdout.toString(), "green round 0 /tmp\n");
});

it("stops the image's program by the image's signal, and waits for it", async (t) => {
  const daemon = await startDaemon(t);
  await importKernel(daemon);
  const script =
    "trap 'sleep 1; echo bye >/root/farewell; exit 0' USR1; trap 'echo term >/root/farewell' TERM; echo up; while :; do sleep 0.1; done";
  const layout = ensureBusyboxLayout("stopped-by-usr1", { cmd: ["/bin/sh", "-c", script], stopSignal: "SIGUSR1", env: ["PATH=/bin"] });
  await importImage(daemon, layout, "polite");
  assert.equal((await daemon.client.images.get("polite")).config?.stop_signal, "SIGUSR1");
  await daemon.client.vms.create({ name: "polite", image: "polite", memory_mib: 192 });
  for await (const chunk of daemon.client.execs.attach("polite", "workload", { reconnectMs: 90_000 }).output()) {
    if (Buffer.from(chunk.data).toString().includes("up")) break;
  }
  const stopped = await daemon.client.vms.stop("polite", { timeout_seconds: 30 });
  assert.deepEqual([stopped.state, stopped.reason], ["stopped", "guest_shutdown"]);
  await daemon.client.vms.start("polite", { ready: "exec" });
  assert.equal(await shOutput(daemon, "polite", "cat /root/farewell"), "bye");
});

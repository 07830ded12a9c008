/** The rest of the agent's requests, as far as they do not change the machine the test runs on. */
import assert from "node:assert/strict";
import { readFileSync, statSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { newId, systemRandom } from "@fluxvm/core";
import { systemClock } from "@fluxvm/host";
import { requireRoot } from "@fluxvm/host/testing";
import { createGuestClient, type GuestAgent } from "./index.ts";
import { collectExec, startTestAgent, type TestAgent } from "./testing/index.ts";

const call = { signal: AbortSignal.timeout(60_000) };
let agent: TestAgent;

before(async () => {
  agent = await startTestAgent();
});
after(async () => {
  await agent.stop();
});

function newClient(token = agent.token): GuestAgent {
  return createGuestClient({ endpoint: { kind: "unix", path: agent.path }, token, clock: systemClock, random: systemRandom });
}

test("says who it is", async () => {
  const client = newClient();
  const welcome = await client.waitReady(call);
  const details = await client.info(call);
  assert.deepEqual([details.vmId, details.hostname, details.init, details.workloadError], ["vm-test", "test", "image", undefined]);
  assert.equal(details.bootId, readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim());
  assert.equal(details.agentInstanceId, welcome.agentInstanceId);
  assert.ok(details.capabilities.includes("exec") && details.uptimeMs > 0);
  assert.deepEqual([client.state, client.connected, client.guest?.vmId], ["ready", true, "vm-test"]);
  await client.close();
  assert.deepEqual([client.state, client.connected], ["closed", false]);
});

test("takes entropy, refuses what is no hex or not well-formed", async () => {
  const client = newClient();
  await client.addEntropy(systemRandom.bytes(32), call);
  await assert.rejects(client.resetIdentity({ machineId: "short" }, call), { code: "REQUEST_INVALID" });
  await assert.rejects(client.resetIdentity({ token: "short" }, call), { code: "REQUEST_INVALID" });
  await assert.rejects(client.thaw("relative", call), { code: "REQUEST_INVALID" });
  await client.close();
});

test("several hosts are served side by side, and end apart", async () => {
  const clients = Array.from({ length: 5 }, () => newClient());
  await Promise.all(clients.map(async (c) => await c.ping(call)));
  clients[0]?.destroy();
  await Promise.all(clients.slice(1).map(async (c) => await c.info(call)));
  await Promise.all(clients.map(async (c) => await c.close()));
});

test("a new token holds at once, and for the next start of the service", async () => {
  const client = newClient();
  const token = "ab".repeat(32);
  await client.resetIdentity({ token }, call);
  const old = newClient();
  await assert.rejects(old.waitReady(call), { code: "AGENT_AUTH_FAILED" });
  await old.close();
  const fresh = newClient(token);
  await fresh.waitReady(call);
  await fresh.close();
  const file = join(agent.directory, "config.json");
  assert.match(readFileSync(file, "utf8"), new RegExp(`"token":"${token}"`));
  assert.equal(statSync(file).mode & 0o777, 0o600);
  await client.close();
});

test("a new identity is a host name and a machine id, and a wrong part changes nothing", async (t) => {
  if (!requireRoot(t)) return;
  const before = hostname();
  const twin = await startTestAgent({ ownIdentity: true });
  t.after(async () => await twin.stop());
  const client = createGuestClient({
    endpoint: { kind: "unix", path: twin.path },
    token: twin.token,
    clock: systemClock,
    random: systemRandom,
  });
  t.after(() => client.destroy());
  const readName = async (): Promise<string> => {
    const argv = ["cat", "/proc/sys/kernel/hostname"];
    return (await collectExec(await client.exec.startAttached({ execId: newId("exec", systemRandom), argv }, call))).stdout.trim();
  };
  const machineId = "0123456789abcdef".repeat(2);
  await assert.rejects(client.resetIdentity({ hostname: "half", machineId: "short" }, call), { code: "REQUEST_INVALID" });
  assert.equal(await readName(), before);
  await client.resetIdentity({ hostname: "reborn", machineId }, call);
  assert.equal(await readName(), "reborn");
  assert.equal((await client.info(call)).hostname, "reborn");
  assert.equal(readFileSync(join(twin.directory, "etc/hostname"), "utf8"), "reborn\n");
  assert.equal(readFileSync(join(twin.directory, "etc/machine-id"), "utf8"), `${machineId}\n`);
  assert.equal(hostname(), before, "this host keeps its own");
});

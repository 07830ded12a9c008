/**
 * The guard for real: a network namespace stands for the host, another for the world around it, and processes under a
 * VM's uid try to reach what they must not.
 */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, existsSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { createMemoryLogger } from "@fluxvm/telemetry/testing";
import { systemClock } from "../clock/system-clock.ts";
import type { HostHelper, HostProcess } from "../helper/host-helper.ts";
import { startHostHelper } from "../helper/start-host-helper.ts";
import { runTool } from "../process/run-tool.ts";
import { copyNode, findNativeBinary, requireRoot, requireTool } from "../testing/gates.ts";
import { openEgressGuard, type EgressGuard } from "./egress-guard.ts";

const UID = 64_111;
const OTHER_UID = 64_112;
const signal = AbortSignal.timeout(120_000);
const options = { signal };
const mark = `fxe${process.pid}`;
const [hostNs, worldNs] = [`${mark}h`, `${mark}w`];
const PUBLIC = "203.0.113.2";
const OWN_PUBLIC = "203.0.113.1";
const PRIVATE = "10.9.0.2";
const METADATA = "169.254.169.254";
let helper: HostHelper;
let guard: EgressGuard;
let dir: string;
let node: string;
const servers: HostProcess[] = [];
const canRun = process.getuid?.() === 0;

async function ip(...args: string[]): Promise<void> {
  await runTool({ command: "ip", args, timeoutMs: 10_000, signal });
}

/** Answers "hello PORT" to everybody who connects. */
const SERVER = `
const net = require("node:net");
const ports = process.argv.slice(1);
let left = ports.length;
const ready = () => --left === 0 && require("node:fs").writeFileSync(process.env.READY, "x");
for (const port of ports) net.createServer((c) => c.on("error", () => {}).end("hello " + port)).listen({ port, host: "::" }, ready);
`;

async function serve(ns: string, uid: number, ports: readonly string[]): Promise<void> {
  const ready = join(dir, `ready-${ns}-${uid}`);
  const spec = {
    argv: [node, "-e", SERVER, ...ports],
    env: { READY: ready },
    namespaces: { net: `/run/netns/${ns}` },
    credentials: { uid, gid: uid },
    keepCapabilities: uid === 0 ? ["NET_BIND_SERVICE"] : [],
  };
  const server = await helper.launchProcess(spec, options);
  servers.push(server);
  while (!existsSync(ready)) await systemClock.sleep(10, { signal });
}

/** What a process of that uid gets from address and port: the greeting or how it failed. */
async function reach(
  address: string,
  options_: { readonly port?: number; readonly uid?: number; readonly ns?: string } = {},
): Promise<string> {
  const { port = 8080, uid = UID, ns = hostNs } = options_;
  const path = join(dir, `reach-${Math.random()}`);
  const client = `const c = require("node:net").connect(${port}, ${JSON.stringify(address)}); c.setTimeout(3000, () => { console.log("timeout"); process.exit(); });
    c.on("error", (e) => console.log(e.code)); c.on("data", (d) => console.log(String(d)));`;
  const spec = {
    argv: [node, "-e", client],
    namespaces: { net: `/run/netns/${ns}` },
    credentials: { uid, gid: uid },
    stdout: { kind: "file", path } as const,
  };
  const running = await helper.launchProcess(spec, options);
  await running.exited;
  return readFileSync(path, "utf8").trim();
}

before(async () => {
  if (!canRun) return;
  helper = await startHostHelper({
    binaryPath: findNativeBinary("fluxvm-host-helper"),
    logger: createMemoryLogger().logger,
    clock: systemClock,
  });
  dir = mkdtempSync("/tmp/fluxvm-egress-");
  await runTool({ command: "chmod", args: ["1777", dir], timeoutMs: 5000, signal });
  node = copyNode(dir);
  for (const ns of [hostNs, worldNs]) {
    await ip("netns", "add", ns);
    await ip("-n", ns, "link", "set", "lo", "up");
  }
  await ip("-n", hostNs, "link", "add", "v0", "type", "veth", "peer", "name", "v0", "netns", worldNs);
  for (const [ns, last] of [
    [hostNs, 1],
    [worldNs, 2],
  ] as const) {
    await ip("-n", ns, "link", "set", "v0", "up");
    await ip("-n", ns, "addr", "add", `203.0.113.${last}/24`, "dev", "v0");
    await ip("-n", ns, "addr", "add", `10.9.0.${last}/24`, "dev", "v0");
    await ip("-n", ns, "addr", "add", `2001:db8::${last}/64`, "dev", "v0", "nodad");
    await ip("-n", ns, "addr", "add", `fd00::${last}/64`, "dev", "v0", "nodad");
  }
  await ip("-n", worldNs, "addr", "add", `${METADATA}/32`, "dev", "v0");
  await ip("-n", hostNs, "route", "add", `${METADATA}/32`, "dev", "v0");
  guard = await openEgressGuard({ instanceId: mark, netnsPath: `/run/netns/${hostNs}`, resolvers: [PRIVATE], signal });
  // World: a service, and DNS. Host: a service of the host's, and a port that the VM itself listens on (a forward).
  await serve(worldNs, 0, ["8080", "53"]);
  await serve(hostNs, OTHER_UID, ["8080"]);
  await serve(hostNs, UID, ["9090"]);
});

after(async () => {
  if (!canRun) return;
  for (const server of servers) await server.kill(options);
  for (const ns of [hostNs, worldNs]) await ip("netns", "del", ns);
  await helper.close();
  rmSync(dir, { recursive: true, force: true });
});

test("a VM reaches the internet and DNS, and neither the host nor anything private", async (t) => {
  if (!requireRoot(t) || !requireTool(t, "nft")) return;
  // Without a rule everything answers: the world of this test is there.
  for (const address of ["127.0.0.1", "::1", OWN_PUBLIC, PUBLIC, PRIVATE, METADATA, "fd00::2", "2001:db8::2", "::ffff:127.0.0.1"]) {
    assert.equal(await reach(address), "hello 8080", address);
  }
  await guard.ensureVm({ uid: UID, allow: "none" }, options);
  assert.equal(guard.blocksOwnAddresses, true);
  for (const address of [PUBLIC, "2001:db8::2"]) assert.equal(await reach(address), "hello 8080", address);
  for (const address of [
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "::1",
    OWN_PUBLIC,
    "10.9.0.1",
    PRIVATE,
    METADATA,
    "fd00::2",
    "2001:db8::1",
    "::ffff:127.0.0.1",
  ]) {
    assert.equal(await reach(address), "ECONNREFUSED", address);
  }
  assert.equal(await reach(PRIVATE, { port: 53 }), "hello 53");
  assert.equal(await reach(METADATA, { port: 53 }), "ECONNREFUSED");
});

test("a forwarded port answers its callers, from the host and from outside", async (t) => {
  if (!requireRoot(t) || !requireTool(t, "nft")) return;
  await guard.ensureVm({ uid: UID, allow: "none" }, options);
  assert.equal(await reach("127.0.0.1", { port: 9090, uid: OTHER_UID }), "hello 9090");
  assert.equal(await reach("10.9.0.1", { port: 9090, uid: OTHER_UID, ns: worldNs }), "hello 9090");
  assert.equal(await reach("127.0.0.1", { port: 9090, uid: UID }), "ECONNREFUSED");
});

test("what the spec allows is open, and nothing else", async (t) => {
  if (!requireRoot(t) || !requireTool(t, "nft")) return;
  await guard.ensureVm({ uid: UID, allow: "private" }, options);
  for (const [address, want] of [
    [PRIVATE, "hello 8080"],
    ["fd00::2", "hello 8080"],
    ["127.0.0.1", "ECONNREFUSED"],
    ["10.9.0.1", "ECONNREFUSED"],
    [METADATA, "ECONNREFUSED"],
  ] as const) {
    assert.equal(await reach(address), want, address);
  }
  await guard.ensureVm({ uid: UID, allow: "none", allowCidrs: ["127.0.0.1"] }, options);
  assert.equal(await reach("127.0.0.1"), "hello 8080");
  assert.equal(await reach(PRIVATE), "ECONNREFUSED");
});

test("other users are not touched, and a removed VM leaves nothing", async (t) => {
  if (!requireRoot(t) || !requireTool(t, "nft")) return;
  await guard.ensureVm({ uid: UID, allow: "none" }, options);
  assert.equal(await reach("127.0.0.1", { uid: OTHER_UID }), "hello 8080");
  assert.deepEqual(await guard.list(options), [UID]);
  await openEgressGuard({ instanceId: mark, netnsPath: `/run/netns/${hostNs}`, signal });
  assert.deepEqual(await guard.list(options), [UID], "opening again keeps the rules");
  for (let i = 0; i < 2; i += 1) await guard.removeVm(UID, options);
  assert.deepEqual(await guard.list(options), []);
  assert.equal(await reach("127.0.0.1"), "hello 8080");
  for (let i = 0; i < 2; i += 1) await guard.removeAll(options);
  const { stdout } = await runTool({
    command: "nsenter",
    args: [`--net=/run/netns/${hostNs}`, "nft", "list", "tables"],
    timeoutMs: 5000,
    signal,
  });
  assert.equal(stdout, "");
});

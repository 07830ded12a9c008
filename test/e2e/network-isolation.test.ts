/** In user mode a guest reaches neither the host's loopback, nor link-local metadata, nor private ranges, unless allowed. */
import assert from "node:assert/strict";
import { createServer, type Server } from "node:net";
import { networkInterfaces } from "node:os";
import { it } from "node:test";
import { requireRoot } from "@fluxvm/host/testing";
import type { TestDaemon } from "../fixtures/daemon.ts";
import { bootVm, sh, startWorld } from "../fixtures/world.ts";

async function listen(host: string): Promise<{ server: Server; port: number }> {
  const server = createServer((socket) => socket.end("reached\n"));
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  const address = server.address();
  return { server, port: typeof address === "object" && address !== null ? address.port : 0 };
}

async function reaches(daemon: TestDaemon, vm: string, host: string, port: number): Promise<boolean> {
  const result = await sh(daemon, vm, `nc -w 4 ${host} ${port} </dev/null`);
  return result.stdout.includes("reached");
}

function findPrivateAddress(): string | undefined {
  const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return all.find((a) => a.family === "IPv4" && !a.internal && /^(10\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.)/.test(a.address))?.address;
}

it("keeps a guest from the host's loopback and private addresses until the spec allows them", async (t) => {
  if (!requireRoot(t)) return;
  const daemon = await startWorld(t);
  const loopback = await listen("127.0.0.1");
  const wide = await listen("0.0.0.0");
  t.after(() => {
    loopback.server.close();
    wide.server.close();
  });
  await bootVm(daemon, { name: "walled" });
  await bootVm(daemon, { name: "allowed", network: { mode: "user", allow_cidrs: ["127.0.0.0/8"] } });

  assert.equal(await reaches(daemon, "allowed", "10.0.2.2", loopback.port), true, "the allowed guest shows that the path exists");
  assert.equal(await reaches(daemon, "walled", "10.0.2.2", loopback.port), false, "host loopback through the gateway address");
  const address = findPrivateAddress();
  if (address !== undefined) assert.equal(await reaches(daemon, "walled", address, wide.port), false, `the host's ${address}`);
  assert.equal(await reaches(daemon, "walled", "169.254.169.254", 80), false, "link-local metadata");
});

it("forwards a host port into the guest on loopback only", async (t) => {
  if (!requireRoot(t)) return;
  const daemon = await startWorld(t);
  const free = await listen("127.0.0.1");
  free.server.close();
  await bootVm(daemon, { name: "served", network: { mode: "user", forwards: [{ host_port: free.port, guest_port: 8080 }] } });
  await daemon.client.execs.start("served", {
    command: ["sh", "-c", "mkdir -p /www; echo hello > /www/index.html; httpd -f -p 8080 -h /www"],
  });
  let body = "";
  for (let attempt = 0; attempt < 40 && body === ""; attempt += 1) {
    body = await fetch(`http://127.0.0.1:${free.port}/index.html`, { signal: AbortSignal.timeout(3000) }).then(
      async (reply) => await reply.text(),
      () => "",
    );
    if (body === "") await new Promise((resolve) => setTimeout(resolve, 250));
  }
  assert.equal(body, "hello\n");
});

it("has no network device in mode none", async (t) => {
  const daemon = await startWorld(t);
  await bootVm(daemon, { name: "alone", network: { mode: "none" } });
  const result = await sh(daemon, "alone", "ls /sys/class/net");
  assert.equal(result.stdout.trim(), "lo");
});

/** Debian's docker-registry on loopback, for one test. */
import { mkdir, writeFile } from "node:fs/promises";
import { connect, createServer, type AddressInfo } from "node:net";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { runTool, spawnTool, systemClock } from "@fluxvm/host";
import type { ImageWorld } from "./image-world.ts";

const DEADLINE_MS = 20_000;

/** Resolves with `127.0.0.1:PORT`. */
export async function startRegistry(t: TestContext, w: ImageWorld): Promise<string> {
  const directory = join(w.directory, "registry");
  await mkdir(directory);
  const port = await findFreePort();
  const config = join(directory, "config.yml");
  await writeFile(
    config,
    `version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: ${directory}/data}}\nhttp: {addr: "127.0.0.1:${port}"}\n`,
  );
  const tool = spawnTool({ command: "docker-registry", args: ["serve", config], timeoutMs: 600_000, signal: w.signal });
  t.after(async () => {
    tool.kill();
    await tool.done.catch(() => undefined);
  });
  tool.stdout.resume();
  const deadline = systemClock.bootMs() + DEADLINE_MS;
  while (!(await answers(port))) {
    if (systemClock.bootMs() > deadline) throw new Error("the registry does not answer");
    await systemClock.sleep(50);
  }
  return `127.0.0.1:${port}`;
}

/** Pushes an image of a layout. */
export async function pushImage(w: ImageWorld, source: string, reference: string): Promise<void> {
  const args = ["copy", "--quiet", "--all", "--dest-tls-verify=false", source, `docker://${reference}`];
  await runTool({ command: "skopeo", args, timeoutMs: 60_000, signal: w.signal, env: { HOME: w.directory } });
}

async function findFreePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // it listens on TCP
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function answers(port: number): Promise<boolean> {
  return await new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}

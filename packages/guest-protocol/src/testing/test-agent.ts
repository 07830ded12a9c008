/**
 * The real agent as a process on this host, on a Unix socket: what a test of the protocol needs, without a VM.
 * Its execs run here, as whoever runs the test.
 */
import { systemRandom, randomHex } from "@fluxvm/core";
import { spawn, type ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createConnection } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const TARGET = "../../../../native/target/x86_64-unknown-linux-gnu/release/fluxvm-guest-agent";

/** Where `cargo build --release --target x86_64-unknown-linux-gnu -p guest-agent` in `native/` puts it. */
export function testAgentBinaryPath(): string {
  return new URL(TARGET, import.meta.url).pathname;
}

export interface TestAgent {
  readonly path: string;
  readonly token: string;
  readonly pid: number;
  readonly directory: string;
  /** What the agent wrote to its standard error. */
  log(): string;
  stop(): Promise<void>;
}

export async function startTestAgent(
  options: {
    readonly token?: string;
    readonly binary?: string;
    readonly config?: Readonly<Record<string, unknown>>;
    /** As root: a host name and an /etc of its own (`etc` in its directory), so that it may change who it is. */
    readonly ownIdentity?: boolean;
  } = {},
): Promise<TestAgent> {
  const binary = options.binary ?? testAgentBinaryPath();
  if (!existsSync(binary)) throw new Error(`the guest agent is not built: ${binary}`);
  const directory = await mkdtemp(join(tmpdir(), "fluxvm-agent-"));
  const token = options.token ?? randomHex(systemRandom, 32);
  const config = { version: 1, vmId: "vm-test", token, hostname: "test", ...options.config };
  await writeFile(join(directory, "config.json"), JSON.stringify(config), { mode: 0o600 });
  const path = join(directory, "agent.sock");
  const serve = [binary, "serve", "--config", join(directory, "config.json"), "--listen", `unix:${path}`];
  const etc = join(directory, "etc");
  if (options.ownIdentity === true) await mkdir(etc);
  const own = ["unshare", "--uts", "--mount", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', etc, ...serve];
  const [command = "", ...argv] = options.ownIdentity === true ? own : serve;
  const child = spawn(command, argv, { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (log = (log + text).slice(-65_536)));
  const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const stop = async (): Promise<void> => {
    child.kill("SIGKILL");
    await exited;
    await rm(directory, { recursive: true, force: true });
  };
  try {
    await waitListening(path, child);
  } catch (error) {
    await stop();
    throw new Error(`the guest agent did not start: ${log}`, { cause: error });
  }
  return { path, token, pid: child.pid ?? 0, directory, log: () => log, stop };
}

async function waitListening(path: string, child: ChildProcess): Promise<void> {
  for (let attempt = 0; attempt < 500; attempt += 1) {
    if (child.exitCode !== null) throw new Error(`it ended with code ${child.exitCode}`);
    const there = await new Promise<boolean>((resolve) => {
      const socket = createConnection({ path });
      socket.once("connect", () => {
        socket.destroy();
        resolve(true);
      });
      socket.once("error", () => resolve(false));
    });
    if (there) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error("it does not listen");
}

/**
 * `npm run quickstart`: the whole story of one VM in one command, on this host, with nothing but `fluxctl`.
 *
 * It keeps its state directory under `.cache/quickstart`, so a second run finds kernel and image ready. Every step is a
 * command a person could type; the table at the end says how long each took.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findLeftovers } from "./leftovers.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const FLUXCTL = join(ROOT, "bin", "fluxctl");
const VM = "quickstart";

interface Step {
  readonly name: string;
  readonly ms: number;
}

interface Tour {
  readonly socket: string;
  readonly stateDir: string;
  readonly scratch: string;
  readonly steps: Step[];
}

async function main(): Promise<number> {
  const stateDir = join(ROOT, ".cache", "quickstart", "state");
  mkdirSync(stateDir, { recursive: true });
  const scratch = mkdtempSync(join(tmpdir(), "fluxvm-quickstart-"));
  const tour: Tour = { socket: join(scratch, "fluxvm.sock"), stateDir, scratch, steps: [] };
  let daemon: ChildProcess | undefined;
  try {
    daemon = await timed(tour, "start the daemon", async () => await startDaemon(tour));
    const accelerator = await walk(tour);
    await timed(tour, "stop the daemon", async () => await stopDaemon(daemon));
    printTable(tour.steps, accelerator);
    return 0;
  } catch (error) {
    process.stderr.write(`\nquickstart failed: ${error instanceof Error ? error.message : String(error)}\n`);
    process.stderr.write(tail(join(scratch, "daemon.log"), 30));
    return 1;
  } finally {
    if (daemon?.exitCode === null) {
      await fluxctl(tour, ["vm", "delete", VM], { quiet: true, allowFailure: true });
      await stopDaemon(daemon);
    }
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** The tour itself. Returns the accelerator that was used. */
async function walk(tour: Tour): Promise<string> {
  await fluxctl(tour, ["vm", "delete", VM], { quiet: true, allowFailure: true });
  const suite = readSuite();
  const image = `debian:${suite}`;
  await timed(tour, "get a guest kernel", async () => {
    if (!(await isReady(tour, ["kernel", "get", "default"]))) await fluxctl(tour, ["kernel", "import", `debian:${suite}`]);
  });
  await timed(tour, `make the image ${image}`, async () => {
    if (!(await isReady(tour, ["image", "get", image]))) await fluxctl(tour, ["image", "import", image]);
  });
  await timed(tour, "boot a VM to its first command", async () => {
    await fluxctl(tour, ["vm", "create", VM, "--image", image, "--memory", "512M", "--ttl", "10m", "--ready"]);
  });
  await timed(tour, "run a command with live output", async () => {
    await fluxctl(tour, ["exec", VM, "--", "sh", "-c", "uname -a; for i in 1 2 3; do echo line $i; sleep 0.2; done; df -h /"]);
  });
  await timed(tour, "copy a file in and out", async () => await copyRoundTrip(tour));
  await fluxctl(tour, ["vm", "list"]);
  const accelerator = await readAccelerator(tour);
  await timed(tour, "let a 2 s TTL delete it", async () => {
    await fluxctl(tour, ["vm", "extend", VM, "--ttl", "2s"]);
    await fluxctl(tour, ["vm", "wait", VM, "--for", "gone", "--timeout", "60s"]);
  });
  await timed(tour, "prove that nothing is left", async () => {
    const left = findLeftovers(tour.stateDir);
    if (left.length > 0) throw new Error(`left behind: ${left.join(", ")}`);
    process.stdout.write("  no process, cgroup, socket, disk or firewall entry of this instance is left\n");
    await Promise.resolve();
  });
  return accelerator;
}

async function copyRoundTrip(tour: Tour): Promise<void> {
  const there = join(tour.scratch, "there.bin");
  const back = join(tour.scratch, "back.bin");
  writeFileSync(there, randomBytes(4 * 1024 * 1024));
  await fluxctl(tour, ["cp", there, `${VM}:/root/copied.bin`]);
  await fluxctl(tour, ["cp", `${VM}:/root/copied.bin`, back]);
  const same = hash(there) === hash(back);
  process.stdout.write(`  4 MiB there and back: ${same ? "identical" : "DIFFERENT"}\n`);
  if (!same) throw new Error("the copied file came back different");
}

function hash(path: string): string {
  return createHash("sha256").update(readFileSync(path)).digest("hex");
}

async function startDaemon(tour: Tour): Promise<ChildProcess> {
  const log = join(tour.scratch, "daemon.log");
  const args = ["serve", "--state-dir", tour.stateDir, "--run-dir", join(tour.scratch, "run"), "--socket", tour.socket, "--listen", ""];
  process.stdout.write(`$ fluxctl serve --state-dir ${tour.stateDir} &\n`);
  const fd = openSync(log, "a");
  const daemon = spawn(FLUXCTL, args, { stdio: ["ignore", fd, fd], cwd: tour.scratch });
  const deadline = Date.now() + 60_000;
  for (;;) {
    if (daemon.exitCode !== null) throw new Error(`the daemon ended with ${daemon.exitCode}`);
    if (await exists(tour, ["version"])) return daemon;
    if (Date.now() > deadline) throw new Error("the daemon did not answer within 60 s");
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function stopDaemon(daemon: ChildProcess | undefined): Promise<void> {
  if (daemon === undefined || daemon.exitCode !== null) return;
  const ended = new Promise<void>((resolve) => {
    daemon.once("exit", () => resolve());
  });
  daemon.kill("SIGTERM");
  const forced = setTimeout(() => daemon.kill("SIGKILL"), 15_000);
  await ended;
  clearTimeout(forced);
}

interface CommandOptions {
  readonly quiet?: boolean;
  readonly allowFailure?: boolean;
}

async function fluxctl(tour: Tour, args: readonly string[], options: CommandOptions = {}): Promise<string> {
  if (options.quiet !== true) process.stdout.write(`$ fluxctl ${args.map(quote).join(" ")}\n`);
  const child = spawn(FLUXCTL, ["--server", `unix:${tour.socket}`, ...args], {
    stdio: ["ignore", "pipe", options.quiet === true ? "ignore" : "inherit"],
    cwd: tour.scratch,
  });
  let output = "";
  child.stdout.setEncoding("utf8");
  child.stdout.on("data", (chunk: string) => {
    output += chunk;
    if (options.quiet !== true) process.stdout.write(chunk.replace(/^(?=.)/gm, "  "));
  });
  const code = await new Promise<number | null>((resolve) => {
    child.once("close", resolve);
  });
  if (code !== 0 && options.allowFailure !== true) throw new Error(`fluxctl ${args.join(" ")} ended with ${code}`);
  return code === 0 ? output : "";
}

async function exists(tour: Tour, args: readonly string[]): Promise<boolean> {
  return (await fluxctl(tour, [...args, "--output", "json"], { quiet: true, allowFailure: true })) !== "";
}

/** Whether an image or kernel is there and whole: one whose import failed is imported again. */
async function isReady(tour: Tour, args: readonly string[]): Promise<boolean> {
  const text = await fluxctl(tour, [...args, "--output", "json"], { quiet: true, allowFailure: true });
  const view: unknown = text === "" ? undefined : JSON.parse(text);
  return typeof view === "object" && view !== null && "state" in view && view.state === "ready";
}

async function readAccelerator(tour: Tour): Promise<string> {
  const view: unknown = JSON.parse(await fluxctl(tour, ["vm", "get", VM, "--output", "json"], { quiet: true }));
  return typeof view === "object" && view !== null && "accelerator" in view ? String(view.accelerator) : "unknown";
}

function readSuite(): string {
  const match = /^VERSION_CODENAME=(\w+)/m.exec(readFileSync("/etc/os-release", "utf8"));
  return match?.[1] ?? "bookworm";
}

async function timed<T>(tour: Tour, name: string, work: () => Promise<T>): Promise<T> {
  const start = performance.now();
  const result = await work();
  tour.steps.push({ name, ms: performance.now() - start });
  return result;
}

function printTable(steps: readonly Step[], accelerator: string): void {
  const width = Math.max(...steps.map((s) => s.name.length));
  process.stdout.write(`\n${"step".padEnd(width)}  seconds\n`);
  for (const step of steps) process.stdout.write(`${step.name.padEnd(width)}  ${(step.ms / 1000).toFixed(2).padStart(7)}\n`);
  const total = steps.reduce((sum, step) => sum + step.ms, 0);
  process.stdout.write(`${"total".padEnd(width)}  ${(total / 1000).toFixed(2).padStart(7)}\naccelerator: ${accelerator}\n`);
}

function quote(argument: string): string {
  return /^[\w@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", String.raw`'\''`)}'`;
}

function tail(path: string, lines: number): string {
  try {
    return `${readFileSync(path, "utf8").trimEnd().split("\n").slice(-lines).join("\n")}\n`;
  } catch {
    return "";
  }
}

process.exitCode = await main();

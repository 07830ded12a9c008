/** The process: its streams, signals and exit, and nothing else. */
import { fileURLToPath } from "node:url";
import type { Environment } from "./environment.ts";
import { runCli } from "./run-cli.ts";

const DAEMON = fileURLToPath(new URL("../../fluxvmd/src/main.ts", import.meta.url));
const BROKEN_PIPE_EXIT = 141;
const brokenPipeHandlers = new Set<() => void>();

const environment: Environment = {
  variables: process.env,
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  nowMs: () => performance.now(),
  onSignal(name, handler) {
    process.on(name, handler);
    return () => process.off(name, handler);
  },
  onExit(handler) {
    process.on("exit", handler);
    return () => process.off("exit", handler);
  },
  onBrokenPipe(handler) {
    brokenPipeHandlers.add(handler);
    return () => brokenPipeHandlers.delete(handler);
  },
  exit: (code) => process.exit(code),
  becomeDaemon(args) {
    process.execve?.(process.execPath, [process.execPath, ...process.execArgv, DAEMON, ...args], process.env);
  },
};

// A reader that went away (`fluxctl logs | head`) is no error of ours.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
  if (brokenPipeHandlers.size === 0) process.exit(BROKEN_PIPE_EXIT);
  for (const handler of brokenPipeHandlers) handler();
});

const code = await runCli(process.argv.slice(2), environment);
if (process.stdout.writable) await new Promise<void>((resolve) => process.stdout.write("", () => resolve()));
process.exit(code); // a terminal that is still being read would keep the process alive

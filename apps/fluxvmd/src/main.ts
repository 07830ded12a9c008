/**
 * The daemon's entry point: `serve` and `doctor`. The only file that touches arguments, environment, signals and the
 * exit code. `fluxctl serve` and `fluxctl doctor` replace themselves by it.
 *
 * Errors that stop it are one line on standard error and the exit code of their class. A first SIGTERM, SIGINT or
 * SIGHUP stops gracefully, a second one at once. VMs run on in every case.
 */
import { PlatformError, toPlatformError } from "@fluxvm/core";
import { createLogger, describeError, type Logger } from "@fluxvm/telemetry";
import { CONFIG_FLAGS, parseFlags } from "./config/flags.ts";
import { loadConfig } from "./config/load-config.ts";
import { DOCTOR_SWITCHES, runDoctor } from "./doctor.ts";
import { avoidWrongOptimisation } from "./engine-flags.ts";
import { serve } from "./serve.ts";
import { readVersion } from "./version.ts";

const FALLBACK_CONFIG_PATH = "/etc/fluxvm/config.toml";
const STOP_SIGNALS = ["SIGTERM", "SIGINT", "SIGHUP"] as const;
/** What skopeo reads; nothing else of the daemon's environment reaches a program. */
const SKOPEO_VARIABLES = [
  "HOME",
  "XDG_RUNTIME_DIR",
  "REGISTRY_AUTH_FILE",
  "HTTP_PROXY",
  "HTTPS_PROXY",
  "NO_PROXY",
  "http_proxy",
  "https_proxy",
  "no_proxy",
];

async function main(args: readonly string[]): Promise<number | undefined> {
  const [command, ...rest] = args;
  if (rest.includes("--help") || rest.includes("-h")) {
    process.stdout.write(describeUsage());
    return 0;
  }
  switch (command) {
    case "serve":
      await runServe(rest);
      return undefined; // the daemon lives until a signal
    case "doctor":
      return await runDoctorCommand(rest);
    case "--version":
    case "version":
      process.stdout.write(`${readVersion()}\n`);
      return 0;
    case undefined:
    case "--help":
    case "-h":
    case "help":
      process.stdout.write(describeUsage());
      return command === undefined ? 2 : 0;
    default:
      throw new PlatformError("REQUEST_INVALID", `Unknown command ${JSON.stringify(command)}; there are "serve" and "doctor"`);
  }
}

async function runServe(args: readonly string[]): Promise<void> {
  const config = loadConfig({ ...toConfigSource(args, []) });
  const logger = createLogger({ level: config.log.level });
  dieOfBugs(logger);
  const starting = new AbortController();
  const stop = onStopSignals(logger, () => starting.abort(new PlatformError("SHUTTING_DOWN", "Stopped while starting")));
  const environment = SKOPEO_VARIABLES.map((name) => [name, process.env[name]] as const).filter(
    (entry): entry is [string, string] => entry[1] !== undefined,
  );
  const daemon = await serve({
    config,
    logger,
    signal: starting.signal,
    notifySocket: process.env["NOTIFY_SOCKET"],
    skopeoEnvironment: Object.fromEntries(environment),
  });
  await stop;
  logger.info("stopping");
  await daemon.stop();
  logger.info("stopped");
  process.exit(0);
}

async function runDoctorCommand(args: readonly string[]): Promise<number> {
  const source = toConfigSource(args, DOCTOR_SWITCHES);
  const config = loadConfig(source);
  const logger = createLogger({ level: "warn" });
  return await runDoctor({
    config,
    logger,
    isJson: source.switches.has("--json"),
    refresh: source.switches.has("--refresh"),
    write: (text) => process.stdout.write(text),
  });
}

function toConfigSource(
  args: readonly string[],
  switches: readonly string[],
): Parameters<typeof loadConfig>[0] & { readonly switches: ReadonlySet<string> } {
  const flags = parseFlags(args, switches);
  const path = flags.configPath ?? process.env["FLUXVM_CONFIG"];
  return { path: path === "" ? undefined : path, fallbackPath: FALLBACK_CONFIG_PATH, overrides: flags.overrides, switches: flags.switches };
}

/** Resolves with the first signal; the second ends the process. */
async function onStopSignals(logger: Logger, onFirst: () => void): Promise<void> {
  await new Promise<void>((resolve) => {
    let count = 0;
    for (const name of STOP_SIGNALS) {
      process.on(name, () => {
        count += 1;
        if (count > 1) process.exit(130);
        logger.info({ signal: name }, "asked to stop");
        onFirst();
        resolve();
      });
    }
  });
}

/** A bug may have left anything half-done: better a new start, which adopts the VMs. */
function dieOfBugs(logger: Logger): void {
  const die = (error: unknown): void => {
    logger.fatal({ err: error }, "bug, the daemon ends; vms run on");
    process.exit(1);
  };
  process.on("uncaughtException", die);
  process.on("unhandledRejection", die);
}

function describeUsage(): string {
  const flags = CONFIG_FLAGS.map(({ name, type, description, fallback }) => {
    return `  ${`${name} <${type}>`.padEnd(38)} ${description}${fallback === "" ? "" : ` (default ${fallback})`}`;
  });
  return [
    "usage: fluxvmd serve [flags]                      start the daemon in the foreground",
    "       fluxvmd doctor [--json] [--refresh] [flags]  say what this host can do",
    "",
    "Flags are the keys of the configuration file; they win over it.",
    `  ${"--config <string>".padEnd(38)} Configuration file (default $FLUXVM_CONFIG, else ${FALLBACK_CONFIG_PATH} if it is there)`,
    ...flags,
    "",
  ].join("\n");
}

avoidWrongOptimisation();
try {
  const code = await main(process.argv.slice(2));
  if (code !== undefined) process.exitCode = code;
} catch (thrown) {
  const error = toPlatformError(thrown);
  process.stderr.write(`fluxvmd: ${error.message.replaceAll("\n", " | ")}\n`);
  if (error.code === "INTERNAL") process.stderr.write(`${JSON.stringify(describeError(error.cause ?? error))}\n`);
  process.exit(error.exitCode);
}

/**
 * The daemon's life.
 *
 *   state directory -> lock -> instance id, token -> helper -> store -> wire (probe, adoption) -> listen -> serving
 *   serving -> stop(): no new connections -> requests end, or their time does -> runtime -> store -> helper -> lock
 *
 * What was opened is closed in reverse, also when a later step of starting fails. Stopping never stops a VM.
 */
import { join } from "node:path";
import type { Server } from "node:http";
import { closeApiServer, createApi, createApiServer, createTokenAuthenticator } from "@fluxvm/api";
import type { Config } from "@fluxvm/contracts";
import { Scope, systemRandom } from "@fluxvm/core";
import { acquireStateLock, startHostHelper, systemClock, type HostHelper } from "@fluxvm/host";
import { openSqliteStore } from "@fluxvm/store";
import { MetricsRegistry, type Logger } from "@fluxvm/telemetry";
import { findBinaries } from "./binaries.ts";
import { listenOnTcp, listenOnUnixSocket, parseTcpAddress } from "./listeners.ts";
import { ensureDirectory, ensureInstanceId, ensureStateDirectory, ensureToken } from "./state-dir.ts";
import { readVersion } from "./version.ts";
import { wire } from "./wire.ts";

export interface ServeOptions {
  readonly config: Config;
  readonly logger: Logger;
  /** Fires when starting should be given up. */
  readonly signal: AbortSignal;
  /** The service manager's NOTIFY_SOCKET, if there is one. */
  readonly notifySocket: string | undefined;
  /** Environment that skopeo needs to find its users' auth files and proxies. */
  readonly skopeoEnvironment: Readonly<Record<string, string>>;
}

export interface Daemon {
  /** Idempotent. Resolves when everything is closed. */
  stop(): Promise<void>;
}

/** @throws PlatformError of the step that failed; everything opened before it is closed then. */
export async function serve(options: ServeOptions): Promise<Daemon> {
  const scope = new Scope();
  const { logger } = options;
  try {
    await start(options, scope);
  } catch (error) {
    await release(scope, logger);
    throw error;
  }
  let stopping: Promise<void> | undefined;
  return {
    stop: async () => {
      stopping ??= release(scope, logger);
      await stopping;
    },
  };
}

async function release(scope: Scope, logger: Logger): Promise<void> {
  for (const { name, error } of await scope.release()) logger.error({ err: error, what: name }, "cannot close");
}

async function start(options: ServeOptions, scope: Scope): Promise<void> {
  const { config, logger, signal } = options;
  const startedMs = systemClock.bootMs();
  const version = readVersion();
  const binaries = findBinaries(config.tools);
  const tcpAddress = config.listen === "" ? undefined : parseTcpAddress(config.listen);

  ensureStateDirectory(config.state_dir);
  ensureDirectory(config.run_dir, 0o755);
  const lock = await acquireStateLock({ binaryPath: binaries.hostHelper, path: join(config.state_dir, "lock") });
  scope.add("lock", async () => lock.release());
  const instanceId = await ensureInstanceId(config.state_dir, systemRandom);
  const token = await ensureToken(config.state_dir, systemRandom);

  const helper = await startHostHelper({ binaryPath: binaries.hostHelper, logger, clock: systemClock, lockFd: lock.fd });
  scope.add("host helper", async () => await helper.close());
  const store = await openSqliteStore({ directory: config.state_dir, logger });
  scope.add("store", async () => await store.close());

  const metrics = new MetricsRegistry();
  metrics.collectProcessMetrics();
  const { skopeoEnvironment } = options;
  const runtime = await wire({ config, logger, metrics, instanceId, version, binaries, helper, store, skopeoEnvironment, signal });
  scope.add("runtime", async () => await runtime.close());

  const api = await createApi({
    platform: runtime.platform,
    logger,
    clock: systemClock,
    random: systemRandom,
    auth: createTokenAuthenticator({ token }),
    limits: {
      maxBodyBytes: config.api.max_body_bytes,
      bodyTimeoutMs: config.api.body_timeout_ms,
      requestTimeoutMs: config.api.request_timeout_ms,
      readyTimeoutMs: config.vm.ready_timeout_ms,
    },
    metrics,
    allowedHosts: config.api.allowed_hosts,
  });
  const servers: Server[] = [];
  scope.add("api", async () => {
    const budgetMs = config.api.stop_timeout_ms;
    const closed = servers.map(async (server) => await closeApiServer(server, { clock: systemClock, budgetMs }));
    await api.close(); // ends streams and refuses what still comes in on open connections
    await Promise.all(closed);
  });
  signal.throwIfAborted();

  const unix = createApiServer(api, "unix");
  servers.push(unix);
  await listenOnUnixSocket(unix, config.socket);
  if (tcpAddress !== undefined) {
    const tcp = createApiServer(api, "tcp");
    servers.push(tcp);
    const bound = await listenOnTcp(tcp, tcpAddress);
    logger.info({ host: bound.host, port: bound.port }, "listening on tcp");
  }
  if (options.notifySocket !== undefined) await notifyReady(helper, options.notifySocket, logger);
  logger.info(
    { version, instanceId, pid: process.pid, socket: config.socket, durationMs: Math.round(systemClock.bootMs() - startedMs) },
    "ready",
  );
}

/** A service manager that cannot be told is no reason not to serve. */
async function notifyReady(helper: HostHelper, socket: string, logger: Logger): Promise<void> {
  try {
    await helper.notifyServiceManager(socket, "READY=1", { signal: AbortSignal.timeout(5000) });
  } catch (error) {
    logger.warn({ err: error }, "service manager was not told");
  }
}

/** The real API over a fake platform, listening: what tests of clients talk to. */
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { systemRandom } from "@fluxvm/core";
import { createNullLogger, MetricsRegistry, type Logger } from "@fluxvm/telemetry";
import { createApi } from "../api.ts";
import { createTokenAuthenticator } from "../auth.ts";
import type { ApiLimits } from "../context.ts";
import { closeApiServer, createApiServer } from "../http-server.ts";
import { createFakePlatform, type FakePlatform, type FakePlatformOptions } from "./fake-platform.ts";
import { createRealClock } from "./real-clock.ts";

export interface FakeDaemonOptions extends FakePlatformOptions {
  /** Unix socket to listen on as well. */
  readonly socketPath?: string | undefined;
  readonly logger?: Logger | undefined;
  readonly limits?: Partial<ApiLimits> | undefined;
}

export interface FakeDaemon extends AsyncDisposable {
  readonly platform: FakePlatform;
  /** `http://127.0.0.1:PORT` */
  readonly url: string;
  readonly port: number;
  readonly token: string;
  /** Idempotent. */
  close(): Promise<void>;
}

export async function startFakeDaemon(options: FakeDaemonOptions = {}): Promise<FakeDaemon> {
  const clock = options.clock ?? createRealClock();
  const platform = createFakePlatform({ ...options, clock });
  const token = "fake-token-0123456789abcdef";
  const api = await createApi({
    platform,
    logger: options.logger ?? createNullLogger(),
    clock,
    random: systemRandom,
    auth: createTokenAuthenticator({ token }),
    limits: { maxBodyBytes: 4_194_304, bodyTimeoutMs: 30_000, requestTimeoutMs: 120_000, readyTimeoutMs: 60_000, ...options.limits },
    metrics: new MetricsRegistry(),
    allowedHosts: [],
  });
  const tcp = createApiServer(api, "tcp");
  const servers = [tcp];
  tcp.listen(0, "127.0.0.1");
  await once(tcp, "listening");
  if (options.socketPath !== undefined) {
    const unix = createApiServer(api, "unix");
    unix.listen(options.socketPath);
    await once(unix, "listening");
    servers.push(unix);
  }
  const { port } = tcp.address() as AddressInfo; // a TCP server that listens has one
  let closing: Promise<void> | undefined;
  const closeAll = async (): Promise<void> => {
    await api.close();
    await Promise.all(servers.map(async (server) => await closeApiServer(server, { clock: createRealClock(), budgetMs: 200 })));
  };
  const close = async (): Promise<void> => {
    closing ??= closeAll();
    await closing;
  };
  return { platform, url: `http://127.0.0.1:${port}`, port, token, close, [Symbol.asyncDispose]: close };
}

/** The OpenAPI document without a daemon: for `npm run gen` and for tests. */
import { systemRandom, type Clock } from "@fluxvm/core";
import { createNullLogger, MetricsRegistry } from "@fluxvm/telemetry";
import { createApi } from "./api.ts";
import { createTokenAuthenticator } from "./auth.ts";
import type { Platform } from "./platform.ts";

const STILL_CLOCK: Clock = { wallMs: () => 0, bootMs: () => 0, sleep: async () => undefined, schedule: () => () => undefined };

export async function buildOpenApiDocument(): Promise<Readonly<Record<string, unknown>>> {
  const nothing = {} as Platform["vms"] & Platform["guests"] & Platform["images"] & Platform["kernels"] & Platform["host"]; // no request is served
  const api = await createApi({
    platform: { vms: nothing, guests: nothing, images: nothing, kernels: nothing, host: nothing },
    logger: createNullLogger(),
    clock: STILL_CLOCK,
    random: systemRandom,
    auth: createTokenAuthenticator({ token: "unused" }),
    limits: { maxBodyBytes: 1_048_576, bodyTimeoutMs: 1000, requestTimeoutMs: 1000, readyTimeoutMs: 1000 },
    metrics: new MetricsRegistry(),
    allowedHosts: [],
  });
  try {
    return api.swagger() as unknown as Record<string, unknown>; // a JSON document
  } finally {
    await api.close();
  }
}

/**
 * One import in a process of its own, for tests that kill it or confine it. Standard input is the request as JSON;
 * `importing` is printed once the record is durable, then the image's view.
 */
import { readFileSync } from "node:fs";
import { systemRandom } from "@fluxvm/core";
import { systemClock } from "@fluxvm/host";
import { openSqliteStore } from "@fluxvm/store";
import { createNullLogger } from "@fluxvm/telemetry";
import { createImageService } from "../image-service.ts";
import { hostTools } from "./image-world.ts";

interface ImportOrder {
  readonly stateDir: string;
  /** Default: the state directory. */
  readonly storeDir?: string;
  readonly source: string;
  readonly sha256?: string;
}

const order = JSON.parse(readFileSync(0, "utf8")) as ImportOrder; // written by a test
const store = await openSqliteStore({ directory: order.storeDir ?? order.stateDir, logger: createNullLogger() });
const images = createImageService({
  stateDir: order.stateDir,
  store,
  tools: hostTools(),
  clock: systemClock,
  random: systemRandom,
  logger: createNullLogger(),
  limits: { maxUnpackedBytes: 2 ** 32, maxFiles: 100_000, importTimeoutMs: 240_000 },
  parallelImports: 1,
});
await images.start();
const { id } = await images.create({ source: order.source, ...(order.sha256 === undefined ? {} : { sha256: order.sha256 }) });
console.log("importing");
const view = await images.wait(id, { signal: new AbortController().signal, timeoutMs: 240_000 });
console.log(JSON.stringify(view));
await images.close();
await store.close();

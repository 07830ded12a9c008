/** `npm run gen`: writes everything that is generated; with `--check` it only tells what is out of date and fails. */
import { resolve } from "node:path";
import { cliPage } from "./generators/cli.ts";
import { configPages } from "./generators/config.ts";
import { errorsPage } from "./generators/errors.ts";
import { createMetricsPage } from "./generators/metrics.ts";
import { openApiDocument } from "./generators/openapi.ts";
import { runGenerators } from "./run.ts";

const root = resolve(import.meta.dirname, "../..");
const write = !process.argv.includes("--check");
const generators = [errorsPage, configPages, createMetricsPage(root), openApiDocument, cliPage];
const drifts = await runGenerators(root, generators, { write });
for (const { generator, path } of drifts) console.log(`${write ? "wrote" : "out of date"}: ${path} (${generator})`);
if (!write && drifts.length > 0) process.exitCode = 1;

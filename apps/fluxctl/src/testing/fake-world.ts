/** A pretended daemon with one of each thing, and the program pointed at it. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { startFakeDaemon, type FakeDaemon } from "@fluxvm/sdk/testing";
import { runCli } from "../run-cli.ts";
import { FakeEnvironment, runFake, type CliResult, type FakeEnvironmentOptions } from "./fake-environment.ts";

export interface World {
  readonly daemon: FakeDaemon;
  /** A scratch directory. */
  readonly directory: string;
  run(...words: string[]): Promise<CliResult>;
  runWith(options: FakeEnvironmentOptions, ...words: string[]): Promise<CliResult>;
  /** Starts a run to talk to while it goes. */
  start(options: FakeEnvironmentOptions, ...words: string[]): { readonly environment: FakeEnvironment; readonly code: Promise<number> };
  /** Text without what differs from run to run. */
  stable(text: string): string;
}

export async function createWorld(t: TestContext): Promise<World> {
  const directory = await mkdtemp(join(tmpdir(), "fluxctl-test-"));
  const daemon = await startFakeDaemon({ listen: join(directory, "s.sock") });
  t.after(async () => {
    await daemon.stop();
    await rm(directory, { recursive: true, force: true });
  });
  const withServer = (options: FakeEnvironmentOptions): FakeEnvironmentOptions => ({
    ...options,
    variables: { FLUXVM_SERVER: `unix:${join(directory, "s.sock")}`, ...options.variables },
  });
  return {
    daemon,
    directory,
    run: async (...words) => await runFake(words, withServer({})),
    runWith: async (options, ...words) => await runFake(words, withServer(options)),
    start(options, ...words) {
      const environment = new FakeEnvironment(withServer(options));
      return { environment, code: runCli(words, environment) };
    },
    stable: (text) => text.replaceAll(directory, "<dir>").replaceAll(/\(\d[\d.]* (ms|s)\)/g, "(<time>)"),
  };
}

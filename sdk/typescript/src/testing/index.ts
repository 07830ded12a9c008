export { FakeDaemon, startFakeDaemon, type FakeDaemonOptions, type SeenRequest } from "./fake-daemon.ts";
export type { FakeProcess, FakeProgram } from "./fake-exec.ts";
export { FakeHost } from "./fake-host.ts";

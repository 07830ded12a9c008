export { createFakePlatform, type FakeOperation, type FakePlatform, type FakePlatformOptions } from "./fake-platform.ts";
export { createRealClock } from "./real-clock.ts";
export { startFakeDaemon, type FakeDaemon, type FakeDaemonOptions } from "./fake-daemon.ts";

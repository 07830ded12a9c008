export { assertConsistent, assertNothingLeft } from "./invariants.ts";
export { beginSimulatedDaemon, FOREVER, makeCreateRequest, pick, startSimulatedDaemon, type SimulatedDaemon } from "./simulated-manager.ts";

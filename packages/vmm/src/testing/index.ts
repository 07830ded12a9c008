export { runBackendConformance, type ConformanceOptions } from "./conformance.ts";
export type { BrokenPlan, ConformanceWorld, GuestScenario } from "./world.ts";

export { SimulatedWorld, type Incarnation, type SimulatedWorldOptions } from "./simulated-world.ts";
export { FaultPlan, type Fault } from "./fault-plan.ts";

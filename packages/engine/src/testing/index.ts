export { SimulatedWorld, type Incarnation, type SimulatedWorldOptions } from "./simulated-world.ts";
export { FaultPlan, type Fault } from "./fault-plan.ts";
export { makeNewVm, type NewVmOptions } from "./new-vm.ts";
export type { SimulatedMachine } from "./simulated-backend.ts";

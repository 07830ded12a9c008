/**
 * Turns off one optimisation of the JavaScript engine that computes wrong results (decision record 0011). `bin/fluxctl`
 * starts Node with a flag against its cause; this is for a daemon started in any other way, and takes effect at once:
 * without on-stack replacement by Maglev no running loop is replaced by a wrong one.
 */
import { setFlagsFromString } from "node:v8";

export function avoidWrongOptimisation(): void {
  setFlagsFromString("--no-maglev-osr");
}

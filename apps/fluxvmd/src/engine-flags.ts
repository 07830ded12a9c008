/**
 * Turns off one optimisation of the JavaScript engine that computes wrong results.
 *
 * With V8 14.6 (Node 26.12.1) a loop that is optimised by Maglev while it runs (on-stack replacement) gives wrong
 * results when its function came out of a compile cache (`NODE_COMPILE_CACHE`): the LZ4 decoder's first run left holes in
 * a kernel, each time others. Measured: wrong on every start with a warm cache, right with `--no-maglev-osr`, and right
 * without a cache. The daemon cannot know who set the variable, so it sets the flag, before any long loop has run.
 */
import { setFlagsFromString } from "node:v8";

export function avoidWrongOptimisation(): void {
  setFlagsFromString("--no-maglev-osr");
}

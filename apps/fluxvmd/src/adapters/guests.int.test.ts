/** The engine's view of a guest agent, over the real one on a Unix socket of this host. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemRandom } from "@fluxvm/core";
import { startTestAgent } from "@fluxvm/guest-protocol/testing";
import { systemClock } from "@fluxvm/host";
import { createLogger } from "@fluxvm/telemetry";
import { createGuests } from "./guests.ts";

const call = { signal: AbortSignal.timeout(60_000) };

test("an exec whose caller goes away before it is told the id does not stay in the guest", async (t) => {
  const agent = await startTestAgent();
  const guests = createGuests({ clock: systemClock, random: systemRandom, logger: createLogger({ level: "fatal" }) });
  const guest = guests.connect({ vmId: "vm-a", endpoint: { kind: "unix", path: agent.path }, token: agent.token });
  t.after(async () => {
    await guest.close();
    await agent.stop();
  });
  await guest.waitReady(call);
  let cancelled = 0;
  for (let i = 0; i < 20; i += 1) {
    const caller = new AbortController();
    const started = guest.createExec({ command: ["sleep", "1000"] }, { signal: caller.signal });
    setImmediate(() => caller.abort()); // the request is out by then, the reply hardly in
    await started.then(
      async (exec) => await guest.removeExec(exec.id, call),
      () => void (cancelled += 1),
    );
  }
  assert.ok(cancelled > 0, "no call was given up in time");
  while ((await guest.listExecs(call)).length > 0) await systemClock.sleep(10);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { createFakeHostHelper } from "./fake-host-helper.ts";

const options = { signal: new AbortController().signal };

test("the fake launches, adopts, signals and ends as the real one does", async () => {
  const helper = createFakeHostHelper();
  const launched = await helper.launchProcess({ argv: ["/bin/true"] }, options);
  assert.deepEqual(helper.processes[0]?.spec.argv, ["/bin/true"]);
  const adopted = await helper.adoptProcess(launched.identity, options);
  assert.equal(adopted, launched);
  assert.equal(await helper.adoptProcess({ ...launched.identity, startTimeTicks: 1 }, options), undefined);
  assert.equal(await launched.signal("SIGUSR1", options), true);
  assert.deepEqual(await launched.kill(options), { signal: "SIGKILL" });
  assert.equal(await launched.signal("SIGTERM", options), false);
  assert.equal(await helper.adoptProcess(launched.identity, options), undefined);
});

test("a failure is given once, and a process may end on its own or ignore a signal", async () => {
  const helper = createFakeHostHelper();
  helper.failNextLaunch(new Error("no"));
  await assert.rejects(helper.launchProcess({ argv: ["/x"] }, options), /no/);
  await helper.launchProcess({ argv: ["/x"] }, options);
  helper.onSignal = () => undefined;
  const [process] = helper.processes;
  await process?.signal("SIGKILL", options);
  process?.end({ code: 3 });
  assert.deepEqual(await process?.exited, { code: 3 });
  await assert.rejects(helper.launchProcess({ argv: ["/x"] }, { signal: AbortSignal.abort(new Error("over")) }), /over/);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { MIB } from "@fluxvm/core";
import { computeGuestConfig } from "./guest-config.ts";
import { computeBootPlan, computeLaunchPlan } from "./launch-plan.ts";
import { makeNewVm, SimulatedWorld, type NewVmOptions } from "./testing/index.ts";
import { parseVmRecord, type VmRecord } from "./vm-record.ts";

function makeRecord(spec: NewVmOptions["spec"] = {}): VmRecord {
  const { ports } = new SimulatedWorld().incarnate();
  return { ...makeNewVm(ports, { spec }), format: 1, bootId: "b", state: { phase: "creating", stopRequested: false } };
}

const INPUTS = {
  instanceId: "inst-1",
  workspace: "/vms/x",
  disks: [],
  boot: { kind: "firmware", firmware: "bios" },
  consoleLogMaxBytes: 5,
} as const;

test("the plan has what the record says, absolute and resolved", () => {
  const record = makeRecord({ network: { mode: "user", forwards: [{ host_port: 8080, guest_port: 80 }] }, vcpus: 3, memoryMib: 100 });
  const plan = computeLaunchPlan(record, INPUTS);
  assert.deepEqual(
    [plan.vmId, plan.instanceId, plan.uid, plan.vcpus, plan.memoryMib, plan.agent],
    [record.id, "inst-1", 2_000_000, 3, 100, true],
  );
  assert.deepEqual(plan.console, { logPath: "/vms/x/console.log", maxBytes: 5 });
  assert.deepEqual(plan.network, {
    mode: "user",
    mac: record.mac,
    forwards: [{ protocol: "tcp", hostAddress: "127.0.0.1", hostPort: 8080, guestPort: 80 }],
  });
  assert.ok((plan.limits.memoryMaxBytes ?? 0) > 100 * MIB && (plan.limits.pidsMax ?? 0) > 64);
});

test("without a network there is none, whatever the address", () => {
  assert.deepEqual(computeLaunchPlan(makeRecord({ network: { mode: "none" } }), INPUTS).network, { mode: "none" });
});

test("boot plans", () => {
  const files = { kernelPath: "/k", initrdPath: "/i", varsPath: "/v" };
  assert.deepEqual(computeBootPlan(makeRecord().spec, files), { kind: "kernel", kernelPath: "/k", initrdPath: "/i", cmdline: "" });
  const uefi = makeRecord({ boot: { kind: "firmware", firmware: "uefi" } }).spec;
  assert.deepEqual(computeBootPlan(uefi, files), { kind: "firmware", firmware: "uefi", varsPath: "/v" });
});

test("the guest is told its token only if it has an agent to use it", () => {
  const now = { wallMs: 7, entropy: new Uint8Array(2) };
  const record = makeRecord();
  const config = computeGuestConfig(record, now);
  assert.equal(config.token, record.token);
  assert.deepEqual(config.root, { serial: "fluxvm-root", fstype: "ext4", grow: true });
  assert.equal(config.network.interfaces[0]?.mac, record.mac);
  assert.equal(config.wallClockMs, 7);
  assert.equal(computeGuestConfig(makeRecord({ agent: false }), now).token, undefined);
  assert.equal(computeGuestConfig(makeRecord({ image: undefined }), now).root, undefined);
});

test("a record is read back as it was written; anything else is refused, with nothing of it in the message", () => {
  const record = makeRecord();
  const value: unknown = JSON.parse(JSON.stringify(record));
  assert.deepEqual(JSON.parse(JSON.stringify(parseVmRecord({ key: record.id, value, version: 1 }))), value);
  const broken = { ...record, state: { phase: "dreaming" } };
  assert.throws(
    () => parseVmRecord({ key: record.id, value: broken, version: 1 }),
    (error) => error instanceof Error && /cannot be read/.test(error.message) && !error.message.includes(record.token),
  );
  assert.throws(() => parseVmRecord({ key: "vm-other", value, version: 1 }), /cannot be read/);
});

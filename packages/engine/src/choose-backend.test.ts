import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import type { BackendCapabilities } from "@fluxvm/vmm";
import { chooseBackend, type BackendCandidate, type BackendNeeds } from "./choose-backend.ts";

const CAPABILITIES: BackendCapabilities = {
  accelerators: ["kvm", "tcg"],
  boot: ["kernel"],
  firmware: [],
  diskFormats: ["raw", "qcow2"],
  networkModes: ["none", "user"],
  agentTransports: ["vsock"],
  pause: true,
  snapshot: false,
  migrate: false,
  hotplugCpu: false,
  hotplugMemory: false,
  maxVcpus: 8,
};
const NEEDS: BackendNeeds = { boot: "kernel", networkMode: "user", accel: "auto", agent: true, vcpus: 2, disk: true };
const small: BackendCandidate = {
  name: "small",
  capabilities: CAPABILITIES,
  probe: { usable: true, version: "1", accelerator: "tcg", note: "KVM spins" },
};
const full: BackendCandidate = {
  name: "full",
  capabilities: { ...CAPABILITIES, boot: ["kernel", "firmware"], firmware: ["uefi"], maxVcpus: 200 },
  probe: { usable: true, version: "1", accelerator: "kvm" },
};
const absent: BackendCandidate = {
  name: "absent",
  capabilities: full.capabilities,
  probe: { usable: false, reason: "absent is not installed", advice: "install absent" },
};

function choose(requested: string, needs: Partial<BackendNeeds>, candidates: readonly BackendCandidate[] = [absent, small, full]): string {
  try {
    return chooseBackend({ requested, preference: ["absent", "small", "full", "unheard-of"], needs: { ...NEEDS, ...needs } }, candidates);
  } catch (error) {
    return isPlatformError(error) ? `${error.code}: ${error.message}` : String(error);
  }
}

test("auto takes the first in order that can", () => {
  assert.equal(choose("auto", {}), "small");
  assert.equal(choose("auto", { vcpus: 9 }), "full");
  assert.equal(choose("auto", { boot: "firmware", firmware: "uefi" }), "full");
  assert.equal(choose("auto", { accel: "kvm" }), "full");
});

test("auto says of each why not", () => {
  const text = choose("auto", { boot: "firmware", firmware: "bios" });
  assert.match(
    text,
    /^BACKEND_UNSUPPORTED: .*absent is not installed \(install absent\); small: it cannot boot by firmware; full: it has no bios firmware/,
  );
  assert.match(choose("auto", {}, [absent]), /^BACKEND_UNAVAILABLE/);
  assert.match(choose("auto", {}, []), /none is configured/);
});

test("a named one is that one or an error", () => {
  assert.equal(choose("full", {}), "full");
  assert.match(choose("absent", {}), /^BACKEND_UNAVAILABLE: .*not installed/);
  assert.match(choose("small", { accel: "kvm" }), /^BACKEND_UNSUPPORTED: .*KVM spins/);
  assert.match(choose("small", { networkMode: "tap" }), /^BACKEND_UNSUPPORTED: .*network mode "tap"/);
  assert.match(choose("fall", {}), /^BACKEND_UNKNOWN: .*did you mean "full"/);
});

test("each need can be what is lacking", () => {
  const without = (change: Partial<BackendCapabilities>, needs: Partial<BackendNeeds> = {}): string =>
    choose("small", needs, [{ ...small, capabilities: { ...CAPABILITIES, ...change } }]);
  assert.match(without({ diskFormats: ["raw"] }), /qcow2/);
  assert.equal(without({ diskFormats: ["raw"] }, { disk: false }), "small");
  assert.match(without({ agentTransports: [] }), /channel for the guest agent/);
  assert.match(without({ maxVcpus: 1 }), /at most 1 vCPU/);
  assert.match(without({ accelerators: ["kvm"] }, { accel: "tcg" }), /no accelerator "tcg"/);
});

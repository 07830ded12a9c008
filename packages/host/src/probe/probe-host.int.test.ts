/** The probe on the real host: verdicts must be consistent with the host, and nothing may be left behind. */
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import { createMemoryLogger } from "@fluxvm/telemetry/testing";
import { systemClock } from "../clock/system-clock.ts";
import type { HostHelper } from "../helper/host-helper.ts";
import { startHostHelper } from "../helper/start-host-helper.ts";
import { findNativeBinary, requireKvmDevice, requireRoot, requireTool } from "../testing/gates.ts";
import { getProbe, PROBE_NAMES } from "./host-report.ts";
import { runProbeGuest } from "./kvm-probe.ts";
import { probeHost, type ProbeHostOptions } from "./probe-host.ts";

const signal = AbortSignal.timeout(120_000);
const helperBinaryPath = findNativeBinary("fluxvm-host-helper");
const probeGuestPath = findNativeBinary("fluxvm-probe-guest");
let helper: HostHelper;
let stateDir: string;

before(async () => {
  helper = await startHostHelper({ binaryPath: helperBinaryPath, logger: createMemoryLogger().logger, clock: systemClock });
  stateDir = mkdtempSync("/tmp/fluxvm-probe-");
});
after(async () => {
  await helper.close();
  rmSync(stateDir, { recursive: true, force: true });
});

const options = (): ProbeHostOptions => ({ helper, helperBinaryPath, probeGuestPath, stateDir, signal });

/** The arguments of every process. */
function listCommands(): string[] {
  return readdirSync("/proc").flatMap((pid) => {
    if (!/^\d+$/.test(pid)) return [];
    try {
      return [readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ")];
    } catch {
      return []; // it has ended in between
    }
  });
}

/** What probes could leave: links, namespaces, mounts, tables, cgroups, files, processes. */
function snapshot(): string {
  const mounts = readFileSync("/proc/self/mountinfo", "utf8");
  const links = readdirSync("/sys/class/net").join(" ");
  const cgroups = readdirSync("/sys/fs/cgroup").flatMap((name) => {
    try {
      return readdirSync(join("/sys/fs/cgroup", name, "fluxvm")).filter((entry) => entry.startsWith("probe-"));
    } catch {
      return [];
    }
  });
  const guests = listCommands().filter((line) => line.includes("qemu-system") && line.includes(probeGuestPath));
  return JSON.stringify({ mounts, links, cgroups, guests, files: readdirSync(stateDir) });
}

test("every probe gives a verdict, and nothing is left behind", async (t) => {
  if (!requireRoot(t)) return;
  const before = snapshot();
  const report = await probeHost(options());
  assert.equal(snapshot(), before);
  assert.deepEqual(
    report.results.map((result) => result.name),
    [...PROBE_NAMES],
  );
  for (const result of report.results) {
    assert.ok(result.detail !== "", result.name);
    assert.equal(result.advice === "", result.status === "works", JSON.stringify(result));
    assert.ok(!result.detail.startsWith("The probe itself failed"), JSON.stringify(result));
    t.diagnostic(`${result.name}: ${result.status}: ${result.detail}`);
  }
  assert.equal(getProbe(report, "seccomp").status, "works");
  assert.equal(getProbe(report, "net-namespace").status, "works");
});

test("the probe guest itself is good: it finishes under software emulation", async (t) => {
  if (!requireTool(t, "qemu-system-x86_64")) return;
  const run = await runProbeGuest({ accelerator: "tcg", cpu: "qemu64", probeGuestPath, signal, startMs: 30_000, loopMs: 30_000 });
  assert.equal(run.outcome, "done", JSON.stringify(run));
});

test("the verdict on KVM agrees with what the guest does on it, and comes in time", async (t) => {
  if (!requireRoot(t) || !requireKvmDevice(t) || !requireTool(t, "qemu-system-x86_64")) return;
  const startedMs = systemClock.bootMs();
  const kvm = getProbe(await probeHost(options()), "kvm");
  assert.ok(systemClock.bootMs() - startedMs < 20_000);
  const patient = await runProbeGuest({ accelerator: "kvm", cpu: "qemu64", probeGuestPath, signal, startMs: 5000, loopMs: 4000 });
  assert.equal(kvm.status === "works", patient.outcome === "done", `${kvm.detail} / ${JSON.stringify(patient)}`);
  if (kvm.status === "broken") assert.match(kvm.detail, /emulates instructions|did not reach|QEMU failed/);
});

test("a guest that hangs is given up at the deadline and its QEMU killed", async (t) => {
  if (!requireTool(t, "qemu-system-x86_64")) return;
  const startedMs = systemClock.bootMs();
  const run = await runProbeGuest({ accelerator: "tcg", cpu: "qemu64", probeGuestPath, signal, startMs: 1 });
  assert.equal(run.outcome, "no-start");
  assert.ok(systemClock.bootMs() - startedMs < 3000);
  assert.deepEqual((JSON.parse(snapshot()) as { guests: unknown[] }).guests, []);
});

test("a file that is no guest is told", async (t) => {
  if (!requireTool(t, "qemu-system-x86_64")) return;
  const path = join(stateDir, "junk");
  writeFileSync(path, "junk");
  const run = await runProbeGuest({ accelerator: "tcg", cpu: "qemu64", probeGuestPath: path, signal });
  rmSync(path);
  assert.notEqual(run.outcome, "done");
});

test("a report is kept for the boot, and a refresh, a change or rubbish in the file probes again", async (t) => {
  if (!requireRoot(t)) return;
  const cachePath = join(stateDir, "host.json");
  t.after(() => rmSync(cachePath, { force: true }));
  const first = await probeHost({ ...options(), cachePath });
  const kept = await probeHost({ ...options(), cachePath });
  assert.deepEqual(kept, first);
  const refreshed = await probeHost({ ...options(), cachePath, refresh: true });
  assert.ok(refreshed.probedAtMs > first.probedAtMs);
  writeFileSync(cachePath, readFileSync(cachePath, "utf8").replaceAll(first.bootId, "other-boot"));
  const afterBoot = await probeHost({ ...options(), cachePath });
  assert.ok(afterBoot.probedAtMs > refreshed.probedAtMs);
  writeFileSync(cachePath, "{");
  assert.equal((await probeHost({ ...options(), cachePath })).bootId, first.bootId);
});

test("without the helper's binary there is an error, not a report", async () => {
  await assert.rejects(probeHost({ ...options(), helperBinaryPath: "/nope" }), (error) => isPlatformError(error, "HOST_TOOL_MISSING"));
});

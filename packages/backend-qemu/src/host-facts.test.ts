import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import { parseTscKhz, parseVersion, QemuBinaryFinder } from "./host-facts.ts";
import { parseQemuConfig } from "./config.ts";

const cpuinfo = (flags: string, mhz = "2596.122"): string =>
  `processor\t: 0\nmodel name\t: x\ncpu MHz\t\t: ${mhz}\nflags\t\t: ${flags}\n\nprocessor\t: 1\n`;

test("the counter's frequency is taken where the kernel shows what it measured", () => {
  assert.equal(parseTscKhz(cpuinfo("fpu tsc constant_tsc lm"), false), 2_596_122);
});

test("no frequency is better than the current clock's", () => {
  assert.equal(parseTscKhz(cpuinfo("fpu tsc constant_tsc lm"), true), undefined);
  assert.equal(parseTscKhz(cpuinfo("fpu tsc constant_tsc aperfmperf"), false), undefined);
  assert.equal(parseTscKhz(cpuinfo("fpu tsc"), false), undefined);
  assert.equal(parseTscKhz(cpuinfo("constant_tsc", "0.000"), false), undefined);
  assert.equal(parseTscKhz("", false), undefined);
});

test("versions", () => {
  assert.deepEqual(parseVersion("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright\n"), {
    version: { major: 7, minor: 2 },
    versionText: "7.2.22",
  });
  assert.deepEqual(parseVersion("QEMU emulator version 10.0\n").version, { major: 10, minor: 0 });
  assert.throws(
    () => parseVersion("QEMU emulator version 6.2.0\n"),
    (e) => isPlatformError(e, "HOST_CAPABILITY_MISSING"),
  );
  assert.throws(
    () => parseVersion("bash: qemu: command not found"),
    (e) => isPlatformError(e, "HOST_TOOL_FAILED"),
  );
});

test("a QEMU that is not there is named", async () => {
  const finder = new QemuBinaryFinder(parseQemuConfig({ binary: "qemu-system-none", searchPath: ["/nowhere"] }));
  await assert.rejects(
    finder.find({ signal: AbortSignal.timeout(5000) }),
    (e) => isPlatformError(e, "HOST_TOOL_MISSING") && e.message.startsWith("qemu-system-none is not installed"),
  );
});

test("a configuration is complete, frozen and refuses nonsense by name", () => {
  const config = parseQemuConfig({ ovmfCode: undefined });
  assert.equal(config.ovmfCode, "/usr/share/OVMF/OVMF_CODE_4M.fd");
  assert.ok(Object.isFrozen(config));
  for (const [key, input] of [
    ["binary", { binary: "" }],
    ["commandTimeoutMs", { commandTimeoutMs: 0 }],
    ["launchTimeoutMs", { launchTimeoutMs: Number.NaN }],
    ["systemFolders", { systemFolders: ["lib"] }],
  ] as const) {
    assert.throws(
      () => parseQemuConfig(input),
      (e) => isPlatformError(e, "REQUEST_INVALID") && e.fields[0]?.path === key,
    );
  }
});

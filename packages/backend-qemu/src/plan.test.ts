/** Plans against golden files in testing/golden: a change of a plan is a change of its file. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import type { LaunchPlan } from "@fluxvm/vmm";
import fc from "fast-check";
import { parseQemuConfig } from "./config.ts";
import { findMarker } from "./marker.ts";
import { planQemu, type QemuHost } from "./plan.ts";

const TCG: QemuHost = { binary: "/usr/bin/qemu-system-x86_64", version: { major: 7, minor: 2 }, accelerator: "tcg", tscKhz: 2_596_122 };
const KVM: QemuHost = { binary: "/usr/bin/qemu-system-x86_64", version: { major: 9, minor: 1 }, accelerator: "kvm" };
const CONFIG = parseQemuConfig();
const WORKSPACE = "/var/lib/fluxvm/vms/vm-0000000000000001";

const MINIMAL: LaunchPlan = {
  vmId: "vm-0000000000000001",
  instanceId: "inst-0000000000000001",
  name: "web",
  workspace: WORKSPACE,
  uid: 2_000_001,
  gid: 2_000_001,
  accel: "auto",
  vcpus: 2,
  memoryMib: 512,
  boot: {
    kind: "kernel",
    kernelPath: "/var/lib/fluxvm/kernels/k/vmlinux",
    initrdPath: "/var/lib/fluxvm/kernels/k/initrd",
    cmdline: "root=LABEL=root",
  },
  disks: [],
  network: { mode: "none" },
  agent: false,
  console: { logPath: `${WORKSPACE}/console.log`, maxBytes: 1_048_576 },
  limits: {},
};

const FULL: LaunchPlan = {
  ...MINIMAL,
  disks: [
    {
      serial: "fluxvm-root",
      path: `${WORKSPACE}/root.qcow2`,
      format: "qcow2",
      readonly: false,
      bootable: false,
      backing: [
        { path: "/var/lib/fluxvm/images/b/disk.qcow2", format: "qcow2" },
        { path: "/var/lib/fluxvm/images/a/disk.raw", format: "raw" },
      ],
    },
    { serial: "fluxvm-config", path: `${WORKSPACE}/config.img`, format: "raw", readonly: true, bootable: false, backing: [] },
  ],
  network: {
    mode: "user",
    mac: "52:54:00:12:34:56",
    forwards: [
      { protocol: "tcp", hostAddress: "127.0.0.1", hostPort: 8080, guestPort: 80 },
      { protocol: "udp", hostAddress: "0.0.0.0", hostPort: 5353, guestPort: 53 },
    ],
  },
  agent: true,
};

const UEFI: LaunchPlan = {
  ...FULL,
  boot: { kind: "firmware", firmware: "uefi", varsPath: `${WORKSPACE}/firmware-vars.fd` },
  disks: FULL.disks.map((disk, index) => ({ ...disk, bootable: index === 0 })),
};

const BIOS: LaunchPlan = { ...UEFI, boot: { kind: "firmware", firmware: "bios" }, agent: false, network: { mode: "none" } };

function golden(name: string): unknown {
  return JSON.parse(readFileSync(join(import.meta.dirname, "testing/golden", `${name}.json`), "utf8"));
}

for (const [name, plan, host] of [
  ["kernel-minimal-tcg", MINIMAL, TCG],
  ["kernel-full-kvm", FULL, KVM],
  ["kernel-unknown-counter-tcg", MINIMAL, { ...TCG, tscKhz: undefined }],
  ["uefi-tcg", UEFI, TCG],
  ["bios-kvm", BIOS, KVM],
] as const) {
  test(`plan ${name}`, () => {
    assert.deepEqual(JSON.parse(JSON.stringify(planQemu(plan, host, CONFIG))), golden(name));
  });
}

test("every plan is found by its marker and starts in the sandbox with stopped vCPUs", () => {
  for (const plan of [MINIMAL, FULL, UEFI, BIOS]) {
    const { argv } = planQemu(plan, TCG, CONFIG).process;
    assert.deepEqual(findMarker(argv.join("\0")), { instanceId: plan.instanceId, vmId: plan.vmId });
    assert.equal(argv[argv.indexOf("-sandbox") + 1], "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    assert.ok(argv.includes("-S"));
  }
});

test("only the workspace and writable disks are mounted writable", () => {
  const { mounts = [] } = planQemu(FULL, KVM, CONFIG).process.root ?? {};
  const writable = mounts.filter((m) => m.kind === "bind" && m.readonly !== true).map((m) => (m.kind === "bind" ? m.source : ""));
  assert.deepEqual(writable, [WORKSPACE]);
  const outside = { ...FULL, disks: FULL.disks.map((d) => ({ ...d, path: `/data/${d.serial}` })) };
  const more = planQemu(outside, KVM, CONFIG).process.root?.mounts ?? [];
  assert.deepEqual(
    more.filter((m) => m.kind === "bind" && m.readonly !== true).map((m) => (m.kind === "bind" ? m.source : "")),
    [WORKSPACE, "/data/fluxvm-root"],
  );
});

test("without a network the process has no network either", () => {
  assert.equal(planQemu(MINIMAL, TCG, CONFIG).process.namespaces?.net, "new");
  assert.equal(planQemu(FULL, TCG, CONFIG).process.namespaces?.net, undefined);
});

const firstDisk = FULL.disks[0];
for (const [field, change] of [
  ["vcpus", { vcpus: 0 }],
  ["vcpus", { vcpus: 1.5 }],
  ["memoryMib", { memoryMib: -1 }],
  ["vmId", { vmId: "vm-1,process=evil" }],
  ["instanceId", { instanceId: "inst/.." }],
  ["workspace", { workspace: "relative/path" }],
  ["boot.kernelPath", { boot: { kind: "kernel", kernelPath: "vmlinux", cmdline: "" } }],
  ["boot.cmdline", { boot: { kind: "kernel", kernelPath: "/vmlinux", cmdline: "a\nb" } }],
  ["boot.varsPath", { boot: { kind: "firmware", firmware: "uefi" } }],
  ["disks.0.serial", { disks: [{ ...firstDisk, serial: "a,b=c" }] }],
  ["disks.0.serial", { disks: [{ ...firstDisk, serial: "x".repeat(21) }] }],
  ["disks.1.serial", { disks: [firstDisk, firstDisk] }],
  ["disks.0.path", { disks: [{ ...firstDisk, path: "root.qcow2" }] }],
  [
    "disks.0.backing.1.path",
    {
      disks: [
        {
          ...firstDisk,
          backing: [
            { path: "/a", format: "raw" },
            { path: "b", format: "raw" },
          ],
        },
      ],
    },
  ],
  ["disks.0.backing", { disks: [{ ...firstDisk, format: "raw" }] }],
  ["disks", { disks: Array.from({ length: 21 }, (_, i) => ({ ...firstDisk, serial: `d${i}` })) }],
  ["network.mac", { network: { mode: "user", mac: "52:54:00:12:34:56,romfile=x", forwards: [] } }],
  [
    "network.forwards.0.hostPort",
    {
      network: {
        mode: "user",
        mac: "52:54:00:12:34:56",
        forwards: [{ protocol: "tcp", hostAddress: "127.0.0.1", hostPort: 0, guestPort: 1 }],
      },
    },
  ],
  [
    "network.forwards.0.hostAddress",
    { network: { mode: "user", mac: "52:54:00:12:34:56", forwards: [{ protocol: "tcp", hostAddress: "::1", hostPort: 1, guestPort: 1 }] } },
  ],
] as const) {
  test(`a wrong ${field} is refused by name`, () => {
    const plan = { ...FULL, ...change } as LaunchPlan; // wrong on purpose
    assert.throws(
      () => planQemu(plan, TCG, CONFIG),
      (error) => isPlatformError(error, "REQUEST_INVALID") && error.fields[0]?.path === field,
    );
  });
}

test("a workspace too deep for sockets is refused before anything is made", () => {
  const deep = `/${"d".repeat(96)}`;
  assert.throws(
    () => planQemu({ ...MINIMAL, agent: true, workspace: deep }, TCG, CONFIG),
    (error) => isPlatformError(error, "STATE_DIR_UNUSABLE"),
  );
  planQemu({ ...MINIMAL, agent: true, workspace: deep.slice(0, -1) }, TCG, CONFIG);
});

test("no path or command line becomes an option of its own", () => {
  const text = fc.string({ minLength: 1, maxLength: 30 }).filter((s) => !/[\0\n]/.test(s));
  fc.assert(
    fc.property(text, text, (path, cmdline) => {
      const disk = { serial: "d", path: `/${path}`, format: "raw" as const, readonly: true, bootable: false, backing: [] };
      const { argv } = planQemu(
        { ...MINIMAL, disks: [disk], boot: { kind: "kernel", kernelPath: `/${path}`, cmdline } },
        TCG,
        CONFIG,
      ).process;
      const usual = planQemu({ ...MINIMAL, disks: [disk], boot: { kind: "kernel", kernelPath: "/k", cmdline: "x" } }, TCG, CONFIG).process
        .argv;
      assert.equal(argv.length, usual.length);
      const node = argv.find((word) => word.includes('"disk0-file","filename"'));
      assert.equal((JSON.parse(node ?? "{}") as { filename?: string }).filename, `/${path}`);
    }),
  );
});

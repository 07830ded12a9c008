import assert from "node:assert/strict";
import { test } from "node:test";
import { parseCgroupMounts } from "./cgroup-mounts.ts";
import { planLimits, planOverallWeight } from "./vm-cgroups.ts";

const V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
const MEMORY = "36 31 0:33 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory";
const CPU = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:7 - cgroup cgroup rw,cpu,cpuacct";
const SYSTEMD = "40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd";
const UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
const OTHER = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard";

test("layouts are told apart", () => {
  assert.deepEqual(parseCgroupMounts([OTHER, V2].join("\n")), { mode: "v2", v1: {}, v2: "/sys/fs/cgroup", systemd: undefined });
  const v1 = parseCgroupMounts([OTHER, MEMORY, CPU].join("\n"));
  assert.equal(v1.mode, "v1");
  assert.deepEqual(v1.v1, { memory: "/sys/fs/cgroup/memory", cpu: "/sys/fs/cgroup/cpu,cpuacct", cpuacct: "/sys/fs/cgroup/cpu,cpuacct" });
  const hybrid = parseCgroupMounts([MEMORY, UNIFIED, SYSTEMD].join("\n"));
  assert.deepEqual([hybrid.mode, hybrid.v2, hybrid.systemd], ["hybrid", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"]);
  for (const text of ["", "\n", "junk", " - ", OTHER]) assert.equal(parseCgroupMounts(text).mode, "none", text);
});

test("a limit is written to the right file in the right unit", () => {
  const limits = { memoryMaxBytes: 1 << 30, cpuQuotaPercent: 150, cpuShares: 1024, pidsMax: 64 };
  const written = (mode: "v1" | "v2"): unknown => planLimits(limits, mode).map(({ file, value }) => `${file}=${value}`);
  assert.deepEqual(written("v1"), ["memory.limit_in_bytes=1073741824", "cpu.cfs_quota_us=150000", "cpu.shares=1024", "pids.max=64"]);
  assert.deepEqual(written("v2"), ["memory.max=1073741824", "cpu.max=150000 100000", "cpu.weight=40", "pids.max=64"]);
  const ends = [0, 1e9].map((cpuShares) => planLimits({ cpuShares }, "v2")[0]?.value);
  assert.deepEqual(ends, ["1", "10000"]);
  assert.deepEqual(planLimits({}, "v2"), []);
});

test("all VMs together weigh as much as one ordinary group per processor, and one more", () => {
  assert.deepEqual(planOverallWeight("v1", 2), { file: "cpu.shares", value: "3072" });
  assert.deepEqual(planOverallWeight("hybrid", 8), { file: "cpu.shares", value: "9216" });
  assert.deepEqual(planOverallWeight("v2", 2), { file: "cpu.weight", value: "300" });
  assert.deepEqual(planOverallWeight("v2", 4096), { file: "cpu.weight", value: "10000" });
});

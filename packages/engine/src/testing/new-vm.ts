/** A VM to be created in a simulated world, for tests that need no admission. */
import { newId, randomHex } from "@fluxvm/core";
import type { NewVm } from "../create-vm.ts";
import { computeDeadline, readNow } from "../deadline.ts";
import type { EnginePorts } from "../ports.ts";
import type { VmSpec } from "../vm-record.ts";

export interface NewVmOptions {
  readonly name?: string;
  readonly uid?: number;
  readonly ttlMs?: number;
  readonly spec?: Partial<VmSpec>;
}

export function makeNewVm(ports: EnginePorts, options: NewVmOptions = {}): NewVm {
  const uid = options.uid ?? 2_000_000;
  const spec: VmSpec = {
    vcpus: 1,
    memoryMib: 64,
    accel: "auto",
    image: { id: "img-0000000000000001", name: "debian", kind: "rootfs" },
    diskBytes: 1 << 30,
    boot: { kind: "kernel", kernel: { id: "krn-0000000000000001", name: "cloud", hasAgent: true }, args: "" },
    network: { mode: "user", forwards: [], allow_cidrs: [] },
    hostname: "test",
    agent: true,
    configDisk: true,
    init: "auto",
    cloudInit: { user: "admin" },
    ...options.spec,
  };
  return {
    id: newId("vm", ports.random),
    name: options.name ?? "test",
    labels: {},
    backend: "sim",
    owner: { uid, gid: uid },
    mac: "02:00:00:00:00:01",
    token: randomHex(ports.random, 8),
    spec,
    createdAtWallMs: ports.clock.wallMs(),
    deadline: options.ttlMs === undefined ? undefined : computeDeadline(options.ttlMs, readNow(ports.clock, ports.host.bootId)),
  };
}

import { strict as assert } from "node:assert";
import { test } from "node:test";
import fc from "fast-check";
import { Compile } from "typebox/compile";
import { ConfigSchema, CreateVmRequestSchema, fillSchemaDefaults, findSchemaProblems, PatchVmRequestSchema, type Config } from "./index.ts";

function describe(schema: object, value: unknown): string[] {
  return findSchemaProblems(schema, value).map((p) => `${p.kind} ${p.path}: ${p.message}`);
}

test("a value that fits has no problems", () => {
  assert.deepEqual(
    describe(CreateVmRequestSchema, { name: "a", vcpus: 2, network: { mode: "user", forwards: [{ host_port: 1, guest_port: 2 }] } }),
    [],
  );
  assert.deepEqual(describe(PatchVmRequestSchema, { labels: { a: null, b: "c" }, ttl_seconds: null }), []);
});

test("unknown fields are named by their dotted path with the nearest known one", () => {
  assert.deepEqual(findSchemaProblems(ConfigSchema, { vm: { memoryMb: 1, max_vcpu: 3 } }), [
    { kind: "unknown", path: "vm.memoryMb", message: "is unknown", suggestion: undefined },
    { kind: "unknown", path: "vm.max_vcpu", message: 'is unknown, did you mean "vm.max_vcpus"', suggestion: "vm.max_vcpus" },
  ]);
});

test("each kind of wrong value has words of its own", () => {
  const problems = describe(CreateVmRequestSchema, {
    name: "-x",
    vcpus: 0,
    memory_mib: 1.5,
    disk_size_gib: 0,
    backend: null,
    firmware: "coreboot",
    kernel_args: "x".repeat(3000),
    agent: [],
    labels: { "a b": "c" },
    cloud_init: { ssh_authorized_keys: [""] },
  });
  assert.equal(problems.length, 10);
  for (const [path, pattern] of [
    ["name", /must match/],
    ["vcpus", /must be at least 1/],
    ["memory_mib", /must be a whole number, not 1.5/],
    ["disk_size_gib", /must be greater than 0/],
    ["backend", /must be a string, not null/],
    ["firmware", /must be one of "none", "uefi", "bios"/],
    ["kernel_args", /must have at most 2048 characters/],
    ["agent", /must be an object, not a list/],
    ["labels", /has a key that must match/],
    ["cloud_init.ssh_authorized_keys.0", /must not be empty/],
  ] as const) {
    const found = problems.find((p) => p.startsWith(`wrong ${path}: `));
    assert.match(found ?? "", pattern, path);
  }
});

test("numbers that JSON cannot mean exactly are refused", () => {
  for (const vcpus of [Number.NaN, Number.POSITIVE_INFINITY, 2 ** 60])
    assert.equal(describe(CreateVmRequestSchema, { name: "a", vcpus }).length, 1);
});

test("at most 20 problems are told", () => {
  const value = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`zzz${i}`, 1]));
  assert.equal(findSchemaProblems(CreateVmRequestSchema, value).length, 20);
});

test("defaults: nested where the object is there, everywhere with deep", () => {
  assert.deepEqual(
    fillSchemaDefaults(CreateVmRequestSchema, { name: "a", network: { mode: "user", forwards: [{ host_port: 1, guest_port: 2 }] } }),
    {
      name: "a",
      backend: "auto",
      vcpus: 1,
      memory_mib: 512,
      init: "auto",
      accel: "auto",
      network: { mode: "user", forwards: [{ host_port: 1, guest_port: 2, protocol: "tcp", host_address: "127.0.0.1" }], allow_cidrs: [] },
    },
  );
  const config = fillSchemaDefaults(ConfigSchema, { vm: { accel: "tcg" } }, { deep: true }) as Config; // the schema fills every key
  assert.deepEqual([config.vm.accel, config.vm.uid_start, config.log.level, config.image.parallel_imports], ["tcg", 2_000_000, "info", 2]);
  assert.deepEqual(findSchemaProblems(ConfigSchema, config), []);
});

test("filling in changes neither the value nor the schema's own defaults", () => {
  const value = Object.freeze({ name: "a", network: Object.freeze({ mode: "user" }) });
  const filled = fillSchemaDefaults(CreateVmRequestSchema, value) as { network: { forwards: unknown[] } }; // as the schema says
  filled.network.forwards.push(1);
  const again = fillSchemaDefaults(CreateVmRequestSchema, value) as { network: { forwards: unknown[] } }; // as above
  assert.deepEqual(again.network.forwards, []);
});

test("property: the walk accepts nothing that TypeBox refuses, and never throws", () => {
  const check = Compile(CreateVmRequestSchema);
  const network = fc.oneof(
    fc.constant({ mode: "none" }),
    fc.record({ mode: fc.constantFrom("user", "none", "x"), forwards: fc.anything() }, { requiredKeys: ["mode"] }),
    fc.anything(),
  );
  const request = fc.record(
    {
      name: fc.oneof(fc.constant("ok"), fc.string()),
      vcpus: fc.oneof(fc.integer(), fc.double(), fc.string()),
      labels: fc.anything(),
      network,
      extra: fc.anything(),
    },
    { requiredKeys: ["name"] },
  );
  fc.assert(
    fc.property(fc.oneof(request, fc.anything()), (value) => {
      if (findSchemaProblems(CreateVmRequestSchema, value).length === 0) assert.ok(check.Check(value));
    }),
    { numRuns: 2000 },
  );
});

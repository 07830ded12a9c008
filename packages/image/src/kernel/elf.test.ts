import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { makeElf, makeModule } from "../testing/kernel-files.ts";
import { explainNoPvh, readModuleNeeds } from "./elf.ts";

test("a PVH kernel is known by its note", () => {
  assert.equal(explainNoPvh(makeElf()), undefined);
  assert.equal(explainNoPvh(makeElf({ noteAlign: 0 })), undefined);
});

test("what no VMM can enter is explained", () => {
  assert.match(explainNoPvh(Buffer.from("MZ")) ?? "", /no ELF/);
  assert.match(explainNoPvh(makeElf({ machine: 183 })) ?? "", /64-bit x86/);
  assert.match(explainNoPvh(makeElf({ type: 1 })) ?? "", /no executable/);
  assert.match(explainNoPvh(makeElf({ note: { name: "Xen\0", type: 17 } })) ?? "", /no PVH entry/);
  assert.match(explainNoPvh(makeElf({ note: { name: "GNU\0", type: 18 } })) ?? "", /no PVH entry/);
  const whole = makeElf();
  assert.match(explainNoPvh(whole.subarray(0, whole.length - 1)) ?? "", /cut off/);
});

test("a module tells what it needs", () => {
  const file = makeModule({ license: "GPL", depends: "virtio,virtio_ring", softdep: "pre: a b post: c pre: d" });
  assert.deepEqual(readModuleNeeds(file), { depends: ["virtio", "virtio_ring"], soft: ["a", "b", "d"] });
  assert.deepEqual(readModuleNeeds(makeModule({ depends: "" })), { depends: [], soft: [] });
  assert.deepEqual(readModuleNeeds(Buffer.from("nothing")), { depends: [], soft: [] });
});

test("no bytes make it throw anything but a range", () => {
  const whole = makeElf();
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(whole.length - 1), fc.nat(255)), { maxLength: 8 }), (changes) => {
      const file = Buffer.from(whole);
      for (const [at, value] of changes) file[at] = value;
      assert.doesNotThrow(() => explainNoPvh(file));
      assert.doesNotThrow(() => readModuleNeeds(file));
    }),
    { numRuns: 2000 },
  );
});

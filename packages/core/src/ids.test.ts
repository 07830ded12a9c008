import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isPlatformError } from "./errors/platform-error.ts";
import { isId, newId, parseId } from "./ids.ts";
import { createSeededRandom, randomHex, systemRandom } from "./random.ts";

const KINDS = ["vm", "img", "krn", "exec", "inst", "req"] as const;

test("a new id is an id of its kind and of no other", () => {
  fc.assert(
    fc.property(fc.integer(), fc.constantFrom(...KINDS), (seed, kind) => {
      const id = newId(kind, createSeededRandom(seed));
      assert.match(id, /^[a-z]+-[0-9a-z]{16}$/);
      for (const other of KINDS) assert.equal(isId(other, id), other === kind);
      assert.equal(parseId(kind, id), id);
    }),
  );
});

test("the same seed gives the same ids, the system gives different ones", () => {
  assert.equal(newId("vm", createSeededRandom(7)), newId("vm", createSeededRandom(7)));
  const ids = new Set(Array.from({ length: 1000 }, () => newId("vm", systemRandom)));
  assert.equal(ids.size, 1000);
});

for (const bad of [
  "",
  "vm-",
  "vm",
  "VM-0123456789abcdef",
  "vm-0123456789abcde",
  "vm-0123456789abcdefg",
  "vm-0123456789abcdei",
  "img-0123456789abcdef",
  "vm-../../etc/passwd0",
  "vm-0123456789abcdef\n",
]) {
  test(`${JSON.stringify(bad)} is no VM id`, () => {
    assert.equal(isId("vm", bad), false);
    assert.throws(
      () => parseId("vm", bad),
      (e) => isPlatformError(e, "REQUEST_INVALID"),
    );
  });
}

test("a very long wrong id does not fill the message", () => {
  assert.throws(
    () => parseId("vm", "x".repeat(1e6)),
    (e) => e instanceof Error && e.message.length < 200,
  );
});

test("seeded bytes cover all values, hex has two digits a byte", () => {
  const seen = new Set(createSeededRandom(1).bytes(10_000));
  assert.equal(seen.size, 256);
  assert.match(randomHex(systemRandom, 16), /^[0-9a-f]{32}$/);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import fc from "fast-check";
import { matchesSelector, parseSelector } from "./selector.ts";

const matches = (selector: string, labels: Record<string, string>): boolean => matchesSelector(parseSelector(selector), labels);

test("each kind of term", () => {
  assert.deepEqual(parseSelector("a=1, b!=2,c,!d"), [
    { kind: "equals", key: "a", value: "1" },
    { kind: "differs", key: "b", value: "2" },
    { kind: "exists", key: "c" },
    { kind: "absent", key: "d" },
  ]);
});

test("all terms must hold; what lacks a label differs from every value", () => {
  const labels = { a: "1", c: "", "fluxvm.io/x": "y" };
  assert.equal(matches("a=1,b!=2,c,!d", labels), true);
  assert.equal(matches("a=2", labels), false);
  assert.equal(matches("a!=1", labels), false);
  assert.equal(matches("c=", labels), true);
  assert.equal(matches("fluxvm.io/x=y", labels), true);
  assert.equal(matches("a=1,d", labels), false);
  assert.equal(matches("!a", labels), false);
});

test("labels of an object's own kind are not taken for the user's", () => {
  assert.equal(matches("constructor", {}), false);
  assert.equal(matches("!toString", {}), true);
});

test("what is wrong is named", () => {
  for (const bad of [
    "",
    ",",
    "a,,b",
    "=x",
    "!=x",
    "!",
    "a b=c",
    "-a",
    "a==b",
    "a=b=c",
    `a=${"x".repeat(256)}`,
    "k".repeat(64),
    "a,".repeat(65),
  ]) {
    assert.throws(
      () => parseSelector(bad),
      (e) => isPlatformError(e, "REQUEST_INVALID") && e.fields[0]?.path === "label",
      bad,
    );
  }
});

test("any labels are found by the selector made of them, and any text parses or is refused", () => {
  const key = fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9._/-]{0,20}$/);
  const value = fc.stringMatching(/^[A-Za-z0-9._-]{0,20}$/);
  fc.assert(
    fc.property(fc.dictionary(key, value, { minKeys: 1, maxKeys: 10, noNullPrototype: true }), (labels) => {
      assert.ok(
        matches(
          Object.entries(labels)
            .map(([k, v]) => `${k}=${v}`)
            .join(","),
          labels,
        ),
      );
    }),
  );
  fc.assert(
    fc.property(fc.string(), (text) => {
      try {
        parseSelector(text);
      } catch (error) {
        assert.ok(isPlatformError(error, "REQUEST_INVALID"));
      }
    }),
  );
});

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { findNearest } from "./did-you-mean.ts";

test("a likely typo finds its word, in any case", () => {
  const keys = ["memory_mib", "vcpus", "listen_tcp", "state_dir"];
  assert.equal(findNearest("memory_mb", keys), "memory_mib");
  assert.equal(findNearest("VCPU", keys), "vcpus");
  assert.equal(findNearest("listentcp", keys), "listen_tcp");
});

test("a different word finds nothing", () => {
  assert.equal(findNearest("kubernetes", ["vcpus", "state_dir"]), undefined);
  assert.equal(findNearest("anything", []), undefined);
  assert.equal(findNearest("", ["abc"]), undefined);
});

test("a word always finds itself, and the nearest wins over the first", () => {
  assert.equal(findNearest("start", ["stats", "start", "stop"]), "start");
  fc.assert(
    fc.property(fc.array(fc.string({ minLength: 1 }), { minLength: 1 }), fc.nat(), (words, pick) => {
      const word = words[pick % words.length] ?? "";
      assert.equal(findNearest(word, words)?.toLowerCase(), word.toLowerCase());
    }),
  );
});

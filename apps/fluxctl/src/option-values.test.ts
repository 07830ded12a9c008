import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import { parseForward, parseGib, parseInteger, parseMib, parseMode, parsePairs, parseSeconds } from "./option-values.ts";

test("sizes, durations and numbers are read in the unit people mean", () => {
  assert.deepEqual([parseMib("--m", "512"), parseMib("--m", "512M"), parseMib("--m", "2GiB")], [512, 512, 2048]);
  assert.deepEqual([parseGib("--d", "10"), parseGib("--d", "1.5"), parseGib("--d", "512M")], [10, 1.5, 0.5]);
  assert.deepEqual([parseSeconds("--t", "90"), parseSeconds("--t", "1h30m"), parseSeconds("--t", "500ms")], [90, 5400, 0.5]);
  assert.deepEqual([parseInteger("--n", "0"), parseInteger("--n", "42")], [0, 42]);
  assert.equal(parseMode("--mode", "1777"), 0o1777);
});

test("pairs keep what follows the first equals sign, and no key is special", () => {
  assert.deepEqual(parsePairs("--e", ["a=b=c", "e=", "a=later"]), { a: "later", e: "" });
  const odd = parsePairs("--e", ["__proto__=x"]);
  assert.deepEqual(Object.entries(odd), [["__proto__", "x"]]);
});

test("forwards have an address and a protocol when given", () => {
  assert.deepEqual(parseForward("--f", "8080:80"), { host_port: 8080, guest_port: 80 });
  assert.deepEqual(parseForward("--f", "0.0.0.0:53:53/udp"), { host_address: "0.0.0.0", host_port: 53, guest_port: 53, protocol: "udp" });
});

test("what is wrong names the option", () => {
  const wrong: (() => unknown)[] = [
    () => parseMib("--x", "1.5M5"),
    () => parseMib("--x", "1500K"),
    () => parseMib("--x", ""),
    () => parseGib("--x", "-1"),
    () => parseSeconds("--x", "1 fortnight"),
    () => parseInteger("--x", "1e3"),
    () => parseInteger("--x", "9999999999999999"),
    () => parsePairs("--x", ["=v"]),
    () => parseMode("--x", "888"),
    () => parseForward("--x", "80:80/icmp"),
    () => parseForward("--x", ":80:80"),
  ];
  for (const parse of wrong)
    assert.throws(parse, (error) => isPlatformError(error, "REQUEST_INVALID") && error.message.includes("--x"), String(parse));
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import fc from "fast-check";
import { isIpv4, parseCidr } from "./cidr.ts";

const refusal = (text: string): string => {
  try {
    return `accepted as ${parseCidr(text, "x")}`;
  } catch (error) {
    assert.ok(isPlatformError(error, "REQUEST_INVALID"));
    return error.message;
  }
};

test("networks and single addresses, in canonical form", () => {
  for (const [text, expected] of [
    ["10.0.0.0/8", "10.0.0.0/8"],
    ["192.168.1.7", "192.168.1.7/32"],
    ["0.0.0.0/0", "0.0.0.0/0"],
    ["169.254.169.254/32", "169.254.169.254/32"],
    ["fd00::/8", "fd00::/8"],
    ["FD00:0:0::/48", "fd00::/48"],
    ["::1", "::1/128"],
    ["::/0", "::/0"],
    ["2001:db8:0:1::/64", "2001:db8:0:1::/64"],
    ["::ffff:10.0.0.1", "::ffff:a00:1/128"],
  ] as const) {
    assert.equal(parseCidr(text, "x"), expected, text);
  }
});

test("host bits are refused with the network that was meant", () => {
  assert.match(refusal("10.1.2.3/8"), /did you mean 10\.0\.0\.0\/8/);
  assert.match(refusal("fd00::1/64"), /did you mean fd00::\/64/);
});

test("what is no network is refused", () => {
  for (const bad of [
    "",
    "10.0.0.0/33",
    "10.0.0/8",
    "10.0.0.0/08",
    "10.0.0.0/",
    "10.0.0.256",
    "01.2.3.4",
    "10.0.0.0/8/8",
    "fd00::/129",
    "fd00:::1",
    "::1::2",
    "example.com",
    "10.0.0.0/-1",
    "[::1]",
    "::1%eth0",
    "1.2.3.4:80",
    "0x7f.1",
  ]) {
    assert.match(refusal(bad), /^Invalid x/, bad);
  }
});

test("every IPv4 network is itself again", () => {
  fc.assert(
    fc.property(fc.ipV4(), fc.integer({ min: 0, max: 32 }), (address, prefix) => {
      const message = refusal(`${address}/${prefix}`);
      const meant = /did you mean (\S+)$/.exec(message)?.[1] ?? /accepted as (\S+)$/.exec(message)?.[1];
      assert.equal(parseCidr(meant ?? "", "x"), meant);
    }),
  );
  fc.assert(fc.property(fc.ipV6(), (address) => assert.equal(parseCidr(parseCidr(address, "x"), "x"), parseCidr(address, "x"))));
});

test("IPv4 addresses", () => {
  assert.deepEqual(["127.0.0.1", "0.0.0.0", "1.2.3", "1.2.3.4.5", "a.b.c.d", "1.2.3.04", "::1"].map(isIpv4), [
    true,
    true,
    false,
    false,
    false,
    false,
    false,
  ]);
});

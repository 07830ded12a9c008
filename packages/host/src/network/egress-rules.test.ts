import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import { parseResolvers, parseVms, planRemoval, planVm, tableName } from "./egress-rules.ts";

test("a scope ends in its own chain, and what is allowed comes before", () => {
  const lines = planVm("t", { uid: 7, allow: "none", allowCidrs: ["10.1.0.0/16", "fd00::/8"] }, ["127.0.0.53", "fd00::1"]).split("\n");
  const rules = lines.filter((line) => line.startsWith("add rule")).map((line) => line.replace("add rule inet t vm_7 ", ""));
  assert.deepEqual(rules, [
    "ct direction reply accept",
    "ip daddr 127.0.0.53 meta l4proto { tcp, udp } th dport 53 accept",
    "ip6 daddr fd00::1 meta l4proto { tcp, udp } th dport 53 accept",
    "ip daddr 10.1.0.0/16 accept",
    "ip6 daddr fd00::/8 accept",
    "goto blocked_private",
  ]);
  assert.ok(planVm("t", { uid: 7, allow: "private" }, []).includes("vm_7 goto blocked_host"));
});

test("an address that is none is refused and never reaches nft", () => {
  for (const bad of [
    "",
    "10.0.0.0/33",
    "10.0.0",
    "::1/129",
    "10.0.0.0/8; flush ruleset",
    "fe80::1%eth0",
    "10.0.0.0/8/8",
    "0x7f.1",
    "10.0.0.1/-1",
  ]) {
    assert.throws(
      () => planVm("t", { uid: 7, allow: "none", allowCidrs: [bad] }, []),
      (error) => isPlatformError(error, "REQUEST_INVALID") && error.fields[0]?.path === "allow_cidrs.0",
      bad,
    );
  }
  for (const uid of [0, -1, 1.5, Number.NaN]) assert.throws(() => planRemoval("t", uid), /Invalid uid/);
});

test("names, resolvers and listings are read", () => {
  assert.equal(tableName("inst-0a;b"), "fluxvm_inst_0a_b");
  assert.deepEqual(parseResolvers("# x\nnameserver 10.0.0.1\n nameserver\t::1\nnameserver fe80::1%eth0\nnameserver junk\nsearch a\n"), [
    "10.0.0.1",
    "::1",
  ]);
  assert.deepEqual(
    parseVms('{"nftables":[{"metainfo":{}},{"map":{"elem":[[9,{"jump":{"target":"vm_9"}}],[5,{"jump":{"target":"vm_5"}}]]}}]}'),
    [5, 9],
  );
  assert.deepEqual(parseVms('{"nftables":[{"map":{"name":"vms"}}]}'), []);
});

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { encodeGuestConfigDisk, type GuestConfig } from "./guest-config.ts";

const FIXTURE = JSON.parse(readFileSync(new URL("../fixtures/guest-config.json", import.meta.url), "utf8")) as {
  readonly config: GuestConfig;
  readonly diskHex: string;
}; // our own file

test("writes the disk that the agent's own test reads", () => {
  assert.equal(Buffer.from(encodeGuestConfigDisk(FIXTURE.config)).toString("hex"), FIXTURE.diskHex);
});

test("fills whole sectors, and refuses what the agent would not read", () => {
  for (const length of [0, 300, 470, 480, 490, 5000]) {
    assert.equal(encodeGuestConfigDisk({ ...FIXTURE.config, hostname: "x".repeat(length) }).length % 512, 0);
  }
  assert.throws(() => encodeGuestConfigDisk({ ...FIXTURE.config, hostname: "x".repeat(2 ** 20) }), RangeError);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isPlatformError } from "./errors/platform-error.ts";
import { formatBytes, formatDuration, GIB, KIB, MIB, parseDurationMs, parseSizeBytes } from "./units.ts";

test("sizes are read with binary units, in any case", () => {
  assert.equal(parseSizeBytes("1024"), 1024);
  assert.equal(parseSizeBytes("512M"), 512 * MIB);
  assert.equal(parseSizeBytes("2GiB"), 2 * GIB);
  assert.equal(parseSizeBytes(" 1.5 k "), 1.5 * KIB);
  assert.equal(parseSizeBytes("1tib"), 1024 * GIB);
});

for (const bad of ["", "-1", "M", "1X", "1 2", "1e9", "0x10", "1.5.5M", "99999999999999999999", "1constructor", "NaN", "Infinity"]) {
  test(`size ${JSON.stringify(bad)} is refused`, () => {
    assert.throws(
      () => parseSizeBytes(bad),
      (e) => isPlatformError(e, "REQUEST_INVALID"),
    );
  });
}

test("any text gives a safe integer or REQUEST_INVALID, never anything else", () => {
  const text = fc.oneof(fc.string(), fc.stringMatching(/^[0-9]{1,30}[kmgtsdhKMGT]{0,2}$/));
  fc.assert(
    fc.property(text, (input) => {
      for (const parse of [parseSizeBytes, parseDurationMs]) {
        try {
          const value = parse(input);
          assert.ok(Number.isSafeInteger(value) && value >= 0);
        } catch (error) {
          assert.ok(isPlatformError(error, "REQUEST_INVALID"), String(error));
          assert.ok(error.message.length < 1000);
        }
      }
    }),
  );
});

test("durations add up their parts, a bare number is seconds", () => {
  assert.equal(parseDurationMs("90"), 90_000);
  assert.equal(parseDurationMs("1.5"), 1500);
  assert.equal(parseDurationMs("90s"), 90_000);
  assert.equal(parseDurationMs("1h30m"), 5_400_000);
  assert.equal(parseDurationMs("2d"), 172_800_000);
  assert.equal(parseDurationMs("250ms"), 250);
});

for (const bad of ["", "-5s", "5 s", "s", "5x", "5s5", "1h-1m", `${"9".repeat(400)}s`]) {
  test(`duration ${JSON.stringify(bad.slice(0, 20))} is refused`, () => {
    assert.throws(
      () => parseDurationMs(bad),
      (e) => isPlatformError(e, "REQUEST_INVALID"),
    );
  });
}

test("durations of whole units survive a round trip through text", () => {
  const units = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
  fc.assert(
    fc.property(fc.nat(10_000), fc.constantFrom(...(Object.keys(units) as (keyof typeof units)[])), (count, unit) => {
      assert.equal(parseDurationMs(`${count}${unit}`), count * units[unit]);
    }),
  );
});

test("bytes are shown with three digits or so, and never 1024 of a unit", () => {
  assert.equal(formatBytes(0), "0 B");
  assert.equal(formatBytes(1023), "1023 B");
  assert.equal(formatBytes(MIB - 1), "1 MiB".replace("1 ", "1.0 "));
  assert.equal(formatBytes(1536), "1.5 KiB");
  assert.equal(formatBytes(2 * GIB), "2 GiB");
  fc.assert(fc.property(fc.maxSafeNat(), (n) => assert.ok(n > 1024 ** 5 || !formatBytes(n).startsWith("1024 "), formatBytes(n))));
});

test("durations are shown in the two units that matter", () => {
  assert.equal(formatDuration(0), "0 ms");
  assert.equal(formatDuration(999.6), "1.0 s");
  assert.equal(formatDuration(2440), "2.4 s");
  assert.equal(formatDuration(59_999), "1m 0s");
  assert.equal(formatDuration(200_000), "3m 20s");
  assert.equal(formatDuration(7_500_000), "2h 5m");
});

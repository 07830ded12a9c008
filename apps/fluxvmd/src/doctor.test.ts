import { strict as assert } from "node:assert";
import { test } from "node:test";
import { formatReport } from "./doctor.ts";

test("the report is a table: aligned, one line per capability, advice below", () => {
  const text = formatReport({
    boot_id: "b",
    probed_at: "2026-01-01T00:00:00.000Z",
    kernel: "6.1",
    capabilities: [
      { name: "kvm", status: "broken", detail: "two\nlines", advice: "use another host" },
      { name: "user-namespace", status: "works", detail: "made one" },
    ],
  });
  assert.equal(
    text,
    [
      "CAPABILITY      STATUS  DETAIL",
      "kvm             broken  two | lines",
      "                        → use another host",
      "user-namespace  works   made one",
      "",
      "kernel 6.1, probed 2026-01-01T00:00:00.000Z",
      "",
    ].join("\n"),
  );
});

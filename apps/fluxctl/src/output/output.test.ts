import assert from "node:assert/strict";
import { test } from "node:test";
import { PlatformError } from "@fluxvm/core";
import fc from "fast-check";
import { formatError } from "../report-error.ts";
import { FakeEnvironment } from "../testing/fake-environment.ts";
import { formatProgress, ProgressDisplay } from "./progress.ts";
import { formatRecord, formatTable } from "./table.ts";
import { formatAge, sanitise } from "./text.ts";

test("no text from elsewhere can steer a terminal", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      const error = new PlatformError("REQUEST_INVALID", text, { fields: [{ path: text, message: `${text}!` }] });
      for (const shown of [sanitise(text), formatTable([text], [{ title: "T", value: (t) => t }]), formatError(error, "table")]) {
        for (const char of shown) assert.ok(char === "\n" || !/\p{Cc}/u.test(char), JSON.stringify(shown));
      }
    }),
  );
  assert.equal(sanitise("a\u001b[2Jb\u202ec\nd"), "a?[2Jb?c?d");
});

test("columns are as wide as their widest cell, empty cells are dashes, records leave them out", () => {
  const columns = [
    { title: "A", value: (row: readonly string[]) => row[0] },
    { title: "LONG", value: (row: readonly string[]) => row[1] },
  ];
  assert.equal(
    formatTable(
      [
        ["xyz", ""],
        ["y", "z"],
      ],
      columns,
    ),
    "A    LONG\nxyz  -\ny    z\n",
  );
  assert.equal(formatTable([], columns), "A  LONG\n");
  assert.equal(formatRecord(["v", ""], columns), "A  v\n");
});

test("ages have one unit", () => {
  assert.deepEqual([-5, 1500, 119_000, 120_000, 7_200_000, 172_800_000].map(formatAge), ["0s", "2s", "119s", "2m", "2h", "2d"]);
});

test("progress tells share, rate and time left as far as they are known", () => {
  const state = { phase: "fetching", doneBytes: 5 * 1_048_576, totalBytes: 20 * 1_048_576 };
  assert.equal(formatProgress(state, 1_048_576, true), "fetching  [######..................]  25%  5 MiB of 20 MiB  1 MiB/s  15.0 s left");
  assert.equal(formatProgress(state, undefined, false), "fetching  25%  5 MiB of 20 MiB");
  assert.equal(formatProgress({ doneBytes: 1024 }, 512, true), "1 KiB  512 B/s");
  assert.equal(formatProgress({ phase: "building", doneBytes: 0, message: "mmdebstrap" }, undefined, true), "building  mmdebstrap");
  assert.equal(formatProgress({ doneBytes: 3, totalBytes: 2 }, undefined, false), "100%  3 B of 2 B");
});

test("a terminal's line is redrawn in place, at most ten times a second, and cut to its width", () => {
  const environment = new FakeEnvironment({ isTty: true });
  environment.stderr.columns = 40;
  const progress = new ProgressDisplay({ environment, label: "copy", isQuiet: false });
  for (let i = 0; i <= 100; i += 1) progress.update({ doneBytes: i * 1000, totalBytes: 100_000 });
  progress.done("ready");
  const lines = environment.stderr.text.split("\r\u001b[K").slice(1);
  assert.ok(lines.length <= 13, `${lines.length} redraws of 101 updates, each 10 ms apart`);
  for (const line of lines.slice(0, -1)) assert.ok(line.length <= 39 && !line.includes("\n"), line);
  assert.match(lines.at(-1) ?? "", /^copy: ready \(1\.0 s\)\n$/);
});

test("elsewhere a phase is one plain line, and more come every five seconds", () => {
  const environment = new FakeEnvironment();
  const progress = new ProgressDisplay({ environment, label: "img", isQuiet: false });
  for (const phase of ["fetching", "unpacking"]) for (let i = 0; i < 600; i += 1) progress.update({ phase, doneBytes: i });
  const lines = environment.stderr.text.trimEnd().split("\n");
  assert.equal(lines.filter((line) => line.includes("fetching")).length, 2);
  assert.equal(lines.filter((line) => line.includes("unpacking")).length, 2);
  assert.ok(!environment.stderr.text.includes("\u001b"));
});

test("quiet shows nothing", () => {
  const environment = new FakeEnvironment({ isTty: true });
  const progress = new ProgressDisplay({ environment, label: "img", isQuiet: true });
  progress.update({ doneBytes: 1 });
  progress.clear();
  progress.done("ready");
  assert.equal(environment.stderr.text, "");
});

test("an error is a line and a next step; an interrupt is a line; a program gets JSON", () => {
  assert.equal(
    formatError(new PlatformError("VM_NOT_RUNNING", "VM is stopped"), "table"),
    "fluxctl: VM is stopped (VM_NOT_RUNNING)\n  `fluxctl vm start` or `fluxctl vm resume` it.\n",
  );
  assert.equal(formatError(new PlatformError("REQUEST_CANCELLED", "Interrupted"), "table"), "fluxctl: Interrupted (REQUEST_CANCELLED)\n");
  assert.match(formatError(new PlatformError("INTERNAL", "Internal error", { cause: new Error("why") }), "name"), /Cause: why/);
  const fields = [{ path: "vcpus", message: "at least 1" }];
  assert.match(formatError(new PlatformError("REQUEST_INVALID", "Invalid request", { fields }), "table"), /\n {2}vcpus: at least 1\n/);
  assert.deepEqual(JSON.parse(formatError(new PlatformError("REQUEST_INVALID", "x", { fields }), "json")), {
    code: "REQUEST_INVALID",
    class: "invalid_argument",
    message: "x",
    fields,
  });
});

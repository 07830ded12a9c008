import assert from "node:assert/strict";
import { test } from "node:test";
import { findMarker, formatMarker } from "./marker.ts";

const MARK = { instanceId: "inst-0123456789abcdef", vmId: "vm-0123456789abcdef" };

test("a marker is found in a command line as the kernel shows it", () => {
  assert.deepEqual(findMarker(`/usr/bin/qemu-system-x86_64\0-name\0${formatMarker(MARK)}\0-S\0`), MARK);
});

for (const cmdline of [
  "",
  "\0",
  "vim\0guest=fluxvm/inst-a/vm-b\0",
  "-name\0guest=fluxvm/inst-a/vm-b\0", // no program before it
  "qemu\0-name\0guest=fluxvm/inst-a/vm-b/c\0",
  "qemu\0-name\0guest=fluxvm/inst-a\0",
  "qemu\0-name\0guest=fluxvm/../vm-b\0",
  "qemu\0-name\0guest=fluxvm/inst-a/vm-B\0",
  "qemu\0-name\0guest=other\0",
  "qemu\0-name",
]) {
  test(`${JSON.stringify(cmdline)} is nobody's`, () => {
    assert.equal(findMarker(cmdline), undefined);
  });
}

import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import { requireName } from "./copy/walk-guest.ts";
import { parsePlace } from "./guest-path.ts";

test("VM:/path is in a guest; anything else is here", () => {
  assert.deepEqual(parsePlace("web:/a b:c"), { kind: "guest", vm: "web", path: "/a b:c" });
  for (const path of ["./web:/x", "/web:/x", "file", "-", "a/b:/c"]) assert.deepEqual(parsePlace(path), { kind: "local", path });
  for (const text of ["web:rel", "web:", "web:/a\0b"])
    assert.throws(
      () => parsePlace(text),
      (error) => isPlatformError(error, "REQUEST_INVALID"),
      text,
    );
});

test("a name from a guest is its last part, and never one that climbs", () => {
  assert.equal(requireName({ path: "/a/../../etc/passwd" }, "/a"), "passwd");
  for (const path of ["/a/..", "/a/.", "/a/", "", "..", "/a/b\0c"]) {
    assert.throws(
      () => requireName({ path }, "/a"),
      (error) => isPlatformError(error, "AGENT_PROTOCOL"),
      path,
    );
  }
});

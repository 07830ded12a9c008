import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/contracts";
import { parseServerAddress } from "./server-address.ts";

test("Unix sockets and origins are understood", () => {
  assert.deepEqual(parseServerAddress("unix:/run/x.sock"), {
    kind: "unix",
    socketPath: "/run/x.sock",
    origin: "http://localhost",
    shown: "unix:/run/x.sock",
  });
  assert.equal(parseServerAddress("unix:///run/x.sock").shown, "unix:/run/x.sock");
  assert.equal(parseServerAddress("http://127.0.0.1:7788").origin, "http://127.0.0.1:7788");
  assert.equal(parseServerAddress("https://host/").origin, "https://host");
});

test("anything else is refused with what to write, and a password is not repeated", () => {
  for (const text of ["", "x", "unix:", "unix:rel/path", "ftp://x", "127.0.0.1:7788", "http://h/path", "http://h?q=1"]) {
    assert.throws(
      () => parseServerAddress(text),
      (error) => isPlatformError(error, "REQUEST_INVALID") && error.fields[0]?.path === "server",
      text,
    );
  }
  assert.throws(
    () => parseServerAddress("http://me:secret@h"),
    (error) => error instanceof Error && !error.message.includes("secret"),
  );
});

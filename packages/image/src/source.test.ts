import assert from "node:assert/strict";
import test from "node:test";
import { isPlatformError } from "@fluxvm/core";
import fc from "fast-check";
import { parseDebian, parseImageSource } from "./source.ts";

const refusal = { code: "IMAGE_SOURCE_INVALID" };

test("each kind of source is understood", () => {
  assert.deepEqual(parseImageSource("oci:/a/b:tag"), { kind: "oci", path: "/a/b", tag: "tag" });
  assert.deepEqual(parseImageSource("oci:/a:b/c"), { kind: "oci", path: "/a:b/c", tag: undefined });
  assert.deepEqual(parseImageSource("oci-archive:/x.tar:v1.2"), { kind: "oci-archive", path: "/x.tar", tag: "v1.2" });
  assert.deepEqual(parseImageSource("docker://host:5000/a/b:tag"), { kind: "docker", reference: "host:5000/a/b:tag" });
  assert.deepEqual(parseImageSource("docker://debian"), { kind: "docker", reference: "debian" });
  assert.deepEqual(parseImageSource(`docker://r.example/a@sha256:${"0".repeat(64)}`), {
    kind: "docker",
    reference: `r.example/a@sha256:${"0".repeat(64)}`,
  });
  assert.deepEqual(parseImageSource("debian:bookworm+curl,bash,curl"), { kind: "debian", suite: "bookworm", packages: ["bash", "curl"] });
  assert.deepEqual(parseImageSource("debian:bookworm+g++"), { kind: "debian", suite: "bookworm", packages: ["g++"] });
  assert.deepEqual(parseImageSource("/var/disk.qcow2"), { kind: "file", path: "/var/disk.qcow2" });
  assert.deepEqual(parseImageSource("HTTPS://example.org/a b"), { kind: "url", url: "https://example.org/a%20b" });
});

test("what cannot be meant is refused, naming the part", () => {
  const cases = [
    "",
    "alpine",
    "oci:relative",
    "oci:",
    "oci:/a/../b",
    "oci:/a:bad tag",
    "oci-archive:x.tar",
    "docker://",
    "docker://--option",
    "docker://UPPER/case",
    "docker://a b",
    "docker://a@sha256:123",
    "docker://a:tag;rm",
    "debian:",
    "debian:Book worm",
    "debian:bookworm+",
    "debian:bookworm+a,,b",
    "debian:bookworm+--option",
    "debian:../etc",
    "/a/../etc/shadow",
    "/a\0b",
    "http://",
    "https://user:password@example.org/x",
    "ftp://example.org/x",
  ];
  for (const text of cases) assert.throws(() => parseImageSource(text), refusal, JSON.stringify(text));
});

test("a URL's credentials are not repeated in the refusal", () => {
  assert.throws(
    () => parseImageSource("https://user:hunter2@example.org/x"),
    (error: Error) => !error.message.includes("hunter2"),
  );
});

test("no text makes the parser throw anything but a refusal", () => {
  const prefixes = fc.constantFrom("", "oci:", "oci-archive:/", "docker://", "debian:", "http://", "/");
  fc.assert(
    fc.property(prefixes, fc.string({ unit: "binary", maxLength: 60 }), (prefix, rest) => {
      try {
        const source = parseImageSource(prefix + rest);
        if ("path" in source) assert.ok(source.path.startsWith("/") && !source.path.split("/").includes(".."));
        if (source.kind === "docker") assert.ok(!source.reference.startsWith("-"));
      } catch (error) {
        assert.ok(isPlatformError(error, "IMAGE_SOURCE_INVALID"), String(error));
      }
    }),
    { numRuns: 2000 },
  );
});

test("too many packages are refused", () => {
  const names = Array.from({ length: 501 }, (_, index) => `p${index}`);
  assert.throws(() => parseDebian(`debian:bookworm+${names.join(",")}`), refusal);
});

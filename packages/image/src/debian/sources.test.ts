import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { formatDeb822, parseDeb822Sources, parseOneLineSources, selectSuite } from "./sources.ts";

const ONE_LINE = `
# comment
deb http://mirror.example.org/debian bookworm main contrib # trailing
deb-src http://mirror.example.org/debian bookworm main
deb [signed-by=/k.gpg arch=amd64,arm64 trusted=yes] https://mirror.example/debian bookworm-updates main
deb [arch=armhf] https://mirror.example/debian bookworm main
deb cdrom:[Debian]/ bookworm main
nonsense
`;

const DEB822 = `Types: deb deb-src
URIs: http://mirror.example.org/debian
  http://second.example/debian
Suites: bookworm bookworm-updates trixie
Components: main
# a comment inside
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
 -----END PGP PUBLIC KEY BLOCK-----

Types: deb
URIs: http://security.example/
Suites: bookworm-security
Components: main
Enabled: yes

Types: deb
URIs: http://off.example/
Suites: bookworm
Components: main
Enabled: no

Types: deb-src
URIs: http://source.example/
Suites: bookworm
Components: main
`;

test("the one-line format", () => {
  const entries = parseOneLineSources(ONE_LINE, "amd64");
  assert.deepEqual(
    entries.map(({ uris, suites }) => [...uris, ...suites]),
    [
      ["http://mirror.example.org/debian", "bookworm"],
      ["https://mirror.example/debian", "bookworm-updates"],
      ["cdrom:[Debian]/", "bookworm"],
    ],
  );
  assert.equal(selectSuite(entries.slice(2), "bookworm").length, 0);
  assert.deepEqual(entries[0]?.components, ["main", "contrib"]);
  assert.deepEqual(entries[1]?.fields, [
    ["Signed-By", "/k.gpg"],
    ["Trusted", "yes"],
  ]);
});

test("deb822: enabled binary entries, values over several lines", () => {
  const entries = parseDeb822Sources(DEB822, "amd64");
  assert.equal(entries.length, 2);
  assert.deepEqual(entries[0]?.uris, ["http://mirror.example.org/debian", "http://second.example/debian"]);
  assert.match(entries[0]?.fields[0]?.[1] ?? "", /BEGIN PGP[^]*END PGP/);
});

test("a suite comes with its updates and nothing else, and never without itself", () => {
  const entries = parseDeb822Sources(DEB822, "amd64");
  const selected = selectSuite(entries, "bookworm");
  assert.deepEqual(
    selected.map(({ suites }) => suites),
    [["bookworm", "bookworm-updates"], ["bookworm-security"]],
  );
  assert.deepEqual(
    selectSuite(entries, "trixie").map(({ suites }) => suites),
    [["trixie"]],
  );
  assert.deepEqual(selectSuite(entries, "sid"), []);
  assert.deepEqual(selectSuite(entries.slice(1), "bookworm"), []);
});

test("what is written is read back as it was", () => {
  const selected = selectSuite(parseDeb822Sources(DEB822, "amd64"), "bookworm");
  assert.deepEqual(parseDeb822Sources(formatDeb822(selected), "amd64"), selected);
});

test("no text makes the parsers throw", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 200 }), (text) => {
      parseOneLineSources(text, "amd64");
      parseDeb822Sources(text, "amd64");
    }),
  );
});

import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { encodeCpio, type CpioEntry } from "./cpio.ts";

interface Parsed {
  readonly path: string;
  readonly mode: number;
  readonly content: Buffer;
}

/** Reads newc as the kernel does: fixed header of hexadecimal fields, name and content padded to four bytes. */
function parseCpio(archive: Buffer): Parsed[] {
  const found: Parsed[] = [];
  let offset = 0;
  for (;;) {
    assert.equal(archive.toString("latin1", offset, offset + 6), "070701");
    const field = (index: number): number =>
      Number.parseInt(archive.toString("latin1", offset + 6 + index * 8, offset + 14 + index * 8), 16);
    const [mode, size, nameSize] = [field(1), field(6), field(11)];
    const nameAt = offset + 110;
    assert.equal(archive[nameAt + nameSize - 1], 0);
    const path = archive.toString("utf8", nameAt, nameAt + nameSize - 1);
    if (path === "TRAILER!!!") return found;
    const contentAt = Math.ceil((nameAt + nameSize) / 4) * 4;
    found.push({ path, mode, content: archive.subarray(contentAt, contentAt + size) });
    offset = Math.ceil((contentAt + size) / 4) * 4;
  }
}

const part = fc.stringMatching(/^[a-zé0-9._-]{1,12}$/);
const entries = fc.array(
  fc.record({
    kind: fc.constant("file" as const),
    path: part,
    mode: fc.constantFrom(0o644, 0o755, 0o600),
    content: fc.uint8Array({ maxLength: 100 }),
  }),
  { maxLength: 20 },
);

test("what is written is what a reader finds", () => {
  fc.assert(
    fc.property(entries, (list) => {
      const archive = encodeCpio(list);
      assert.equal(archive.length % 512, 0);
      const expected = list.map(({ path, mode, content }) => ({ path, mode: 0o100000 | mode, content: Buffer.from(content) }));
      assert.deepEqual(parseCpio(archive), expected);
    }),
  );
});

test("directories and devices carry their types", () => {
  const list: CpioEntry[] = [
    { kind: "directory", path: "dev", mode: 0o755 },
    { kind: "character-device", path: "dev/console", mode: 0o600, major: 5, minor: 1 },
  ];
  const archive = encodeCpio(list);
  assert.deepEqual(
    parseCpio(archive).map(({ mode }) => mode),
    [0o040755, 0o020600],
  );
  assert.match(archive.toString("latin1"), /0000000500000001/);
});

test("the same content gives the same bytes", () => {
  const list: CpioEntry[] = [{ kind: "file", path: "a", mode: 0o644, content: Buffer.from("x") }];
  assert.deepEqual(encodeCpio(list), encodeCpio(list));
});

test("absolute paths are a mistake of the caller", () => {
  assert.throws(() => encodeCpio([{ kind: "directory", path: "/dev", mode: 0o755 }]), /cpio path/);
});

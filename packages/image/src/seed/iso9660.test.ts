import assert from "node:assert/strict";
import { test } from "node:test";
import { isPlatformError } from "@fluxvm/core";
import fc from "fast-check";
import { buildIso9660, planIsoNames, SECTOR_BYTES, type IsoFile } from "./iso9660.ts";

interface Entry {
  readonly identifier: Buffer;
  readonly sector: number;
  readonly bytes: number;
  readonly rockRidgeName: string | undefined;
}

/** Reads a volume's root by the descriptor of the given sector, as a reader that shares no code with the writer. */
function readRoot(image: Buffer, descriptorSector: number): Entry[] {
  const descriptor = image.subarray(descriptorSector * SECTOR_BYTES);
  assert.equal(descriptor.toString("latin1", 1, 6), "CD001");
  assert.equal(descriptor.readUInt32LE(80), descriptor.readUInt32BE(84));
  assert.equal(descriptor.readUInt32LE(80) * SECTOR_BYTES, image.length);
  const start = descriptor.readUInt32LE(158) * SECTOR_BYTES;
  const end = start + descriptor.readUInt32LE(166);
  const entries: Entry[] = [];
  for (let at = start; at < end;) {
    const length = image[at] ?? 0;
    if (length === 0) {
      at = (Math.floor(at / SECTOR_BYTES) + 1) * SECTOR_BYTES;
      continue;
    }
    assert.ok((at % SECTOR_BYTES) + length <= SECTOR_BYTES, "a record crosses a sector");
    assert.equal(image.readUInt32LE(at + 2), image.readUInt32BE(at + 6));
    entries.push(readRecord(image.subarray(at, at + length)));
    at += length;
  }
  return entries;
}

function readRecord(record: Buffer): Entry {
  const idLength = record[32] ?? 0;
  let at = 33 + idLength + (idLength % 2 === 0 ? 1 : 0);
  let rockRidgeName: string | undefined;
  while (at + 4 <= record.length) {
    const length = record[at + 2] ?? 0;
    if (record.toString("latin1", at, at + 2) === "NM") rockRidgeName = record.toString("latin1", at + 5, at + length);
    at += length;
  }
  return { identifier: record.subarray(33, 33 + idLength), sector: record.readUInt32LE(2), bytes: record.readUInt32LE(10), rockRidgeName };
}

const content = (image: Buffer, entry: Entry): Buffer =>
  image.subarray(entry.sector * SECTOR_BYTES, entry.sector * SECTOR_BYTES + entry.bytes);

test("the names and bytes of any set of files are found by Rock Ridge and by Joliet", () => {
  const name = fc.stringMatching(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/);
  const files = fc.uniqueArray(fc.record({ name, data: fc.uint8Array({ maxLength: 5000 }) }), {
    selector: (file) => file.name,
    maxLength: 64,
  });
  fc.assert(
    fc.property(files, (wanted: IsoFile[]) => {
      const image = Buffer.from(buildIso9660({ volumeId: "cidata", files: wanted }));
      const primary = readRoot(image, 16).slice(2);
      const joliet = readRoot(image, 17).slice(2);
      const expected = new Map(wanted.map((file) => [file.name, Buffer.from(file.data).toString("hex")]));
      assert.deepEqual([primary.length, joliet.length], [wanted.length, wanted.length]);
      assert.deepEqual(new Map(primary.map((entry) => [entry.rockRidgeName, content(image, entry).toString("hex")])), expected);
      const jolietName = (entry: Entry): string => Buffer.from(entry.identifier).swap16().toString("utf16le").replace(/;1$/, "");
      assert.deepEqual(new Map(joliet.map((entry) => [jolietName(entry), content(image, entry).toString("hex")])), expected);
      const identifiers = primary.map((entry) => entry.identifier.toString("latin1"));
      assert.deepEqual(identifiers, [...new Set(identifiers)].sort());
      for (const identifier of identifiers) assert.match(identifier, /^[A-Z0-9_]{0,20}\.[A-Z0-9_]{0,8};1$/);
    }),
    { numRuns: 60 },
  );
});

test("plain names are made of what ISO 9660 allows, each unlike the others", () => {
  assert.deepEqual(planIsoNames(["meta-data", "user-data", "a.txt", "meta_data", ".x"]), [
    "META_DATA.;1",
    "USER_DATA.;1",
    "A.TXT;1",
    "META_DATA_1.;1",
    "_X.;1",
  ]);
});

test("the label is where readers look for it, and the same input gives the same bytes", () => {
  const volume = { volumeId: "cidata", files: [{ name: "a", data: Buffer.from("x") }] };
  const image = Buffer.from(buildIso9660(volume));
  assert.equal(image.toString("latin1", 16 * SECTOR_BYTES + 40, 16 * SECTOR_BYTES + 72).trimEnd(), "cidata");
  assert.deepEqual(Buffer.from(buildIso9660(volume)), image);
});

test("names, counts and sizes outside the limits are refused", () => {
  const build = (names: string[], volumeId = "cidata"): void => {
    buildIso9660({ volumeId, files: names.map((name) => ({ name, data: new Uint8Array(1) })) });
  };
  const isInvalid = (error: unknown): boolean => isPlatformError(error, "REQUEST_INVALID");
  for (const names of [["a/b"], [".."], ["."], [""], ["ä"], ["a\0"], ["a", "a"], ["x".repeat(65)]])
    assert.throws(() => build(names), isInvalid, names.join());
  assert.throws(() => build(["a"], "too long for a volume"), isInvalid);
  assert.throws(() => build(Array.from({ length: 65 }, (_, i) => `f${i}`)), isInvalid);
});

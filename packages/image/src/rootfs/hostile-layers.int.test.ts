/**
 * Layers that try to leave their root, to make devices, to exhaust the host or to confuse the reader. Each must end as
 * a failed import whose error names the entry, with nothing kept and nothing changed outside.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test, { type TestContext } from "node:test";
import { gzipSync } from "node:zlib";
import { requireRoot } from "@fluxvm/host/testing";
import {
  assertReady,
  createImageWorld,
  createLayout,
  listDisk,
  readDiskFile,
  writeTar,
  type ImageWorld,
  type TarItem,
  type TestLayer,
} from "../testing/index.ts";

const dir = (name: string): TarItem => ({ name, type: "5" });
const link = (name: string, target: string): TarItem => ({ name, type: "2", link: target });
const hard = (name: string, target: string): TarItem => ({ name, type: "1", link: target });
const file = (name: string, content = "hostile"): TarItem => ({ name, content });

let counter = 0;

async function importLayers(w: ImageWorld, layers: readonly TestLayer[]): ReturnType<ImageWorld["import"]> {
  counter += 1;
  const layout = await createLayout(join(w.directory, `layout-${counter}`));
  await layout.image({ layers });
  return await w.import({ source: `oci:${layout.directory}` });
}

async function fingerprint(path: string): Promise<string> {
  const { mtimeMs, mode, uid, nlink } = await stat(path);
  return `${mtimeMs} ${mode} ${uid} ${nlink} ${createHash("sha256")
    .update(await readFile(path))
    .digest("hex")}`;
}

/** Upwards and absolute names by depth: the staging directory lies a few levels below `/`. */
const UP = [1, 2, 5, 12].map((depth) => "../".repeat(depth));

const UNSAFE: readonly (readonly [string, readonly (readonly TarItem[])[], string])[] = [
  ...UP.map((up): [string, TarItem[][], string] => [`name with ${up}`, [[file(`${up}tmp/fluxvm-escaped`)]], "fluxvm-escaped"]),
  ["name with .. in the middle", [[dir("a/"), file("a/../../etc/passwd")]], "a/../../etc/passwd"],
  ["name that is ..", [[dir("..")]], ".."],
  ["name ending in /..", [[dir("a/"), dir("a/..")]], "a/.."],
  ["absolute name", [[file("/etc/passwd")]], "/etc/passwd"],
  ["absolute name with slashes", [[file("///etc/passwd")]], "/etc/passwd"],
  ["absolute directory", [[{ name: "/tmp", type: "5", mode: 0o777 }]], "/tmp"],
  ["PAX path with ..", [[{ name: "innocent", content: "x", pax: { path: "../../etc/passwd" } }]], "../../etc/passwd"],
  ["PAX path that is absolute", [[{ name: "innocent", content: "x", pax: { path: "/etc/passwd" } }]], "/etc/passwd"],
  ["GNU long name with ..", [[file(`${"../".repeat(40)}etc/passwd`)]], "../"],
  [
    "sparse name with ..",
    [[{ name: "s", content: "x", pax: { "GNU.sparse.name": "../../x", "GNU.sparse.size": "1", "GNU.sparse.map": "0,1" } }]],
    "../../x",
  ],
  ["symlink upwards, then through it", [[link("l", "../../../../../../../../etc"), file("l/passwd")]], "l/passwd"],
  ["symlink one up, then through it", [[link("l", ".."), file("l/x")]], "l/x"],
  ["symlink in one layer, file in the next", [[link("l", "../../..")], [file("l/tmp/x")]], "l/tmp/x"],
  ["chain of symlinks", [[dir("a/"), link("a/b", "../c"), link("c", "a/../../.."), file("a/b/x")]], "a/b/x"],
  ["symlink to itself", [[link("l", "l"), file("l/x")]], "l/x"],
  ["two symlinks in a circle", [[link("a", "b"), link("b", "a"), file("a/x")]], "a/x"],
  ["directory entry through a symlink upwards", [[link("l", "../.."), { name: "l/tmp/", type: "5", mode: 0o777 }]], "l/tmp/"],
  ["symlink through a symlink upwards", [[link("l", ".."), link("l/x", "/etc/passwd")]], "l/x"],
  ["hard link upwards", [[hard("h", "../../../../../../etc/passwd")]], "h"],
  ["hard link to an absolute name", [[hard("h", "/etc/passwd")]], "h"],
  ["hard link through a symlink upwards", [[link("l", "../../../../../../../etc"), hard("h", "l/passwd")]], "h"],
  ["fifo through a symlink upwards", [[link("l", ".."), { name: "l/p", type: "6" }]], "l/p"],
  ["whiteout of ..", [[file(".wh...")]], ".wh..."],
  ["whiteout of .", [[file(".wh..")]], ".wh.."],
  ["whiteout of nothing", [[file(".wh.")]], ".wh."],
  [
    "whiteout through a symlink upwards",
    [[link("l", "../../../../../../../../tmp")], [file("l/.wh.fluxvm-victim")]],
    "l/.wh.fluxvm-victim",
  ],
  ["opaque mark through a symlink upwards", [[link("l", "../..")], [file("l/.wh..wh..opq")]], "l/.wh..wh..opq"],
  ["character device", [[{ name: "dev/mem", type: "3", devMajor: 1, devMinor: 1 }]], "dev/mem"],
  ["block device", [[{ name: "disk", type: "4", devMajor: 8, devMinor: 0 }]], "disk"],
  ["harmless device", [[{ name: "dev/null", type: "3", devMajor: 1, devMinor: 3 }]], "dev/null"],
  ["overlay whiteout device", [[{ name: "w", type: "3", devMajor: 0, devMinor: 0 }]], '"w"'],
  ["device in a later layer", [[file("a")], [{ name: "b", type: "3" }]], "layer 2"],
];

test("nothing leads out of the root and no device is made", async (t) => {
  if (!requireRoot(t)) return;
  const w = await createImageWorld(t);
  const victim = join(w.directory, "fluxvm-victim");
  await writeFile(victim, "untouched");
  const watched = ["/etc/passwd", victim];
  const before = await Promise.all(watched.map(fingerprint));
  for (const [name, layers, named] of UNSAFE) {
    const image = await importLayers(
      w,
      layers.map((items) => ({ items })),
    );
    assert.equal(image.error?.code, "IMAGE_LAYER_UNSAFE", `${name}: ${image.state} ${String(image.error?.message)}`);
    assert.ok(image.error?.message.includes(named), `${name}: ${image.error.message}`);
    assert.deepEqual(await w.listState(), [], name);
  }
  assert.deepEqual(await Promise.all(watched.map(fingerprint)), before);
  assert.deepEqual(
    (await readdir("/tmp")).filter((name) => name === "fluxvm-escaped"),
    [],
  );
});

const raw = (items: readonly TarItem[], change: (tar: Buffer) => Buffer): TestLayer => ({ tar: change(writeTar(items)) });

const MALFORMED: readonly (readonly [string, readonly TestLayer[], string])[] = [
  ["no tar at all", [{ tar: Buffer.from("garbage".repeat(1000)) }], "IMAGE_MALFORMED"],
  ["wrong checksum", [{ items: [{ name: "a", badChecksum: true }] }], "IMAGE_MALFORMED"],
  ["unknown type", [{ items: [{ name: "a", type: "Q" }] }], "IMAGE_MALFORMED"],
  ["empty name", [{ items: [{ name: "" }] }], "IMAGE_MALFORMED"],
  ["name of 256 bytes", [{ items: [file("n".repeat(256))] }], "IMAGE_MALFORMED"],
  ["path of 5000 bytes", [{ items: [file("d/".repeat(2500))] }], "IMAGE_MALFORMED"],
  ["zero byte in a PAX path", [{ items: [{ name: "a", pax: { path: "a\0b" } }] }], "IMAGE_MALFORMED"],
  ["file as a parent", [{ items: [file("a"), file("a/b")] }], "IMAGE_MALFORMED"],
  ["fifo as a parent", [{ items: [{ name: "p", type: "6" }, file("p/x")] }], "IMAGE_MALFORMED"],
  ["root that is a file", [{ items: [file("./")] }, { items: [{ name: ".", content: "x" }] }], "IMAGE_MALFORMED"],
  ["hard link to nothing", [{ items: [hard("h", "missing")] }], "IMAGE_MALFORMED"],
  ["hard link to a directory", [{ items: [dir("d"), hard("h", "d")] }], "IMAGE_MALFORMED"],
  ["symlink without a target", [{ items: [link("l", "")] }], "IMAGE_MALFORMED"],
  ["owner beyond 32 bits", [{ items: [{ name: "a", pax: { uid: "99999999999" } }] }], "IMAGE_MALFORMED"],
  ["owner beyond what is mapped", [{ items: [{ name: "a", uid: 3_000_000_000 }] }], "IMAGE_MALFORMED"],
  ["PAX header of 5 MiB", [{ items: [{ name: "x", type: "x", content: "a".repeat(5 << 20) }] }], "IMAGE_MALFORMED"],
  ["PAX size that is none", [{ items: [{ name: "a", pax: { size: "-1" } }] }], "IMAGE_MALFORMED"],
  [
    "sparse map that overlaps",
    [{ items: [{ name: "s", content: "abcd", pax: { "GNU.sparse.size": "9", "GNU.sparse.map": "0,2,1,2" } }] }],
    "IMAGE_MALFORMED",
  ],
  ["attribute of 100 KiB", [{ items: [{ name: "a", pax: { "SCHILY.xattr.user.x": "v".repeat(100_000) } }] }], "IMAGE_MALFORMED"],
  ["tar that ends in a header", [raw([file("a")], (tar) => tar.subarray(0, 300))], "IMAGE_TRUNCATED"],
  ["tar that ends in data", [raw([file("a", "x".repeat(5000))], (tar) => tar.subarray(0, 2000))], "IMAGE_TRUNCATED"],
  [
    "gzip that ends early",
    [{ tar: gzipSync(writeTar([file("a", "y".repeat(90_000))])).subarray(0, 60), compression: "none" }],
    "IMAGE_MALFORMED",
  ],
];

test("what is no layer is refused by name", async (t) => {
  const w = await createImageWorld(t);
  for (const [name, layers, code] of MALFORMED) {
    const image = await importLayers(w, layers);
    assert.equal(image.error?.code, code, `${name}: ${image.state} ${String(image.error?.message)}`);
    assert.deepEqual(await w.listState(), [], name);
  }
});

test("bombs end at the limit", async (t) => {
  const w = await createImageWorld(t, { limits: { maxUnpackedBytes: 50 << 20, maxFiles: 2000 } });
  const zeros = Buffer.alloc(60 << 20);
  const cases: readonly (readonly [string, readonly TestLayer[]])[] = [
    ["one large file", [{ items: [{ name: "big", content: zeros }] }]],
    [
      "many layers replacing one file",
      Array.from({ length: 6 }, () => ({ items: [{ name: "same", content: zeros.subarray(0, 10 << 20) }] })),
    ],
    ["many entries", [{ items: Array.from({ length: 2001 }, () => file("same", "")) }]],
    [
      "a sparse file of an exabyte",
      [{ items: [{ name: "s", content: "ab", pax: { "GNU.sparse.size": "1152921504606846976", "GNU.sparse.map": "0,1,5,1" } }] }],
    ],
    ["a size that only says so", [{ items: [{ name: "a", content: "x", pax: { size: "100000000000" } }] }]],
    ["padding without end", [{ tar: Buffer.concat([writeTar([file("a")]), zeros.subarray(0, 60 << 20)]) }]],
  ];
  for (const [name, layers] of cases) {
    const image = await importLayers(w, layers);
    assert.equal(image.error?.code, "IMAGE_TOO_LARGE", `${name}: ${image.state} ${String(image.error?.message)}`);
    assert.deepEqual(await w.listState(), [], name);
  }
});

test("what looks odd and is harmless is taken", async (t) => {
  const w = await createImageWorld(t);
  const image = await importLayers(w, [
    {
      items: [
        dir("./usr/lib"),
        link("lib", "usr/lib"),
        link("abs", "/usr/lib"),
        link("evil", "../../../../etc/passwd"),
        file("lib/a", "1"),
        file("abs/b", "2"),
        file("..hidden", "3"),
        file("a...", "4"),
        file("new\nline", "5"),
        file("twice", "6"),
        file("twice", "7"),
        { name: "old-style-dir/", type: "0" },
        file("old-style-dir/x", "8"),
        hard("self", "self2"),
      ].slice(0, -1),
    },
    { items: [file("evil", "replaced"), file(".wh.never-there"), file(".wh..wh.plnk", "aufs")] },
  ]);
  assertReady(image);
  const { diskPath } = w.images.resolve(image.id);
  assert.deepEqual([...(await listDisk(diskPath, "/usr/lib")).keys()].toSorted(), ["a", "b"]);
  assert.equal(await readDiskFile(diskPath, "/twice"), "7");
  assert.equal(await readDiskFile(diskPath, "/evil"), "replaced");
  assert.equal(await readDiskFile(diskPath, "/..hidden"), "3");
  assert.equal(await readDiskFile(diskPath, "/old-style-dir/x"), "8");
});

async function assertMissing(t: TestContext, path: string): Promise<void> {
  await assert.rejects(stat(path), { code: "ENOENT" }, `${t.name}: ${path} is there`);
}

test("an unpacker that is not there is said", async (t) => {
  const w = await createImageWorld(t, { tools: { hostHelper: "/nonexistent/helper" } });
  const image = await importLayers(w, [{ items: [file("a")] }]);
  assert.equal(image.error?.code, "HOST_TOOL_MISSING");
  const without = await createImageWorld(t, { tools: { mke2fs: "/nonexistent/mke2fs" } });
  assert.equal((await importLayers(without, [{ items: [file("a")] }])).error?.code, "HOST_TOOL_MISSING");
  assert.deepEqual(await without.listState(), []);
  await assertMissing(t, "/tmp/fluxvm-escaped");
});

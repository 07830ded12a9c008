import assert from "node:assert/strict";
import test from "node:test";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { makeBzImage, makeElf } from "../testing/kernel-files.ts";
import { extractKernel } from "./bzimage.ts";
import { LZ4_LEGACY_MAGIC } from "./lz4.ts";

const { signal } = new AbortController();
const elf = makeElf();

/** One block of literals alone. */
function lz4Literals(data: Buffer): Buffer {
  const lengths: number[] = [];
  let rest = data.length - 15;
  for (; rest >= 255; rest -= 255) lengths.push(255);
  const block = Buffer.concat([Buffer.from([0xf0, ...lengths, rest]), data]);
  const head = Buffer.alloc(8);
  head.writeUInt32LE(LZ4_LEGACY_MAGIC, 0);
  head.writeUInt32LE(block.length, 4);
  return Buffer.concat([head, block]);
}

test("the kernel is found in each compression", async () => {
  const cases = [
    makeBzImage({ payload: gzipSync(elf), version: "6.1.0-test (someone) #1" }),
    makeBzImage({ payload: zstdCompressSync(elf), uncompressedBytes: elf.length, version: "6.1.0-test (someone) #1" }),
    makeBzImage({ payload: lz4Literals(elf), uncompressedBytes: elf.length, version: "6.1.0-test (someone) #1" }),
    makeBzImage({ payload: elf, uncompressedBytes: elf.length, version: "6.1.0-test (someone) #1" }),
  ];
  for (const file of cases) {
    const kernel = await extractKernel(file, "k", signal);
    assert.ok(kernel.elf.equals(elf));
    assert.equal(kernel.release, "6.1.0-test");
  }
});

test("a release that could mean a path is not taken", async () => {
  const file = makeBzImage({ payload: gzipSync(elf), version: "../../etc x" });
  assert.equal((await extractKernel(file, "k", signal)).release, undefined);
  assert.equal((await extractKernel(makeBzImage({ payload: gzipSync(elf) }), "k", signal)).release, undefined);
});

test("what is damaged is refused, naming the kernel", async () => {
  const good = makeBzImage({ payload: zstdCompressSync(elf), uncompressedBytes: elf.length });
  const cases: readonly (readonly [Buffer, RegExp])[] = [
    [Buffer.alloc(4096), /neither a bzImage nor an ELF/],
    [Buffer.from("short"), /neither a bzImage nor an ELF/],
    [makeBzImage({ payload: gzipSync(elf), protocol: 0x0207 }), /2\.7 is too old/],
    [good.subarray(0, good.length - 70), /cut off/],
    [makeBzImage({ payload: zstdCompressSync(elf), uncompressedBytes: elf.length + 1 }), /instead of/],
    [makeBzImage({ payload: gzipSync(elf).subarray(0, 40) }), /damaged/],
    [makeBzImage({ payload: Buffer.from("BZh91AY&SY00000000"), uncompressedBytes: 1 }), /bzip2/],
  ];
  for (const [file, message] of cases) {
    await assert.rejects(extractKernel(file, "k", signal), { code: "KERNEL_INVALID", message });
  }
});

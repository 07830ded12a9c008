/**
 * Decodes the legacy LZ4 frame that the kernel's build makes: a magic number, then blocks of at most 8 MiB, each after
 * its compressed size (LZ4 frame format, "Legacy frame"; LZ4 block format).
 */

export const LZ4_LEGACY_MAGIC = 0x184c_2102;
const BLOCK_BYTES = 8 << 20;

/** `undefined` when the bytes are no legacy frame or unpack to more than `maxBytes`. */
export function decodeLz4Legacy(input: Buffer, maxBytes: number): Buffer | undefined {
  if (input.length < 4 || input.readUInt32LE(0) !== LZ4_LEGACY_MAGIC) return undefined;
  const blocks: Buffer[] = [];
  let total = 0;
  let offset = 4;
  while (offset + 4 <= input.length) {
    const size = input.readUInt32LE(offset);
    offset += 4;
    // Another frame may follow; what cannot be a block is the end.
    if (size === LZ4_LEGACY_MAGIC) continue;
    if (size === 0 || offset + size > input.length) break;
    const block = decodeBlock(input.subarray(offset, offset + size));
    if (block === undefined) return undefined;
    total += block.length;
    if (total > maxBytes) return undefined;
    blocks.push(block);
    offset += size;
  }
  return blocks.length === 0 ? undefined : Buffer.concat(blocks);
}

/**
 * `undefined` for anything that is no valid block. Positions are plain locals on purpose: Node 26's optimiser
 * miscompiles this loop when a closure changes them, and then puts out wrong bytes (decision record 0011).
 */
export function decodeBlock(input: Buffer): Buffer | undefined {
  const output = Buffer.allocUnsafe(BLOCK_BYTES);
  let read = 0;
  let written = 0;
  while (read < input.length) {
    const token = input[read] ?? 0;
    read += 1;
    let literals = token >> 4;
    if (literals === 15) {
      const end = findLengthEnd(input, read);
      if (end === undefined) return undefined;
      literals += sumBytes(input, read, end);
      read = end;
    }
    if (read + literals > input.length || written + literals > BLOCK_BYTES) return undefined;
    input.copy(output, written, read, read + literals);
    read += literals;
    written += literals;
    if (read === input.length) break; // the last sequence has no match
    if (read + 2 > input.length) return undefined;
    const distance = input.readUInt16LE(read);
    read += 2;
    let match = (token & 15) + 4;
    if (match === 19) {
      const end = findLengthEnd(input, read);
      if (end === undefined) return undefined;
      match += sumBytes(input, read, end);
      read = end;
    }
    if (distance === 0 || distance > written || written + match > BLOCK_BYTES) return undefined;
    copyMatch(output, written, { distance, length: match });
    written += match;
  }
  return output.subarray(0, written);
}

/** A length goes on up to and with the first byte that is not 255; `undefined` when it is cut off. */
function findLengthEnd(input: Buffer, from: number): number | undefined {
  let at = from;
  while (input[at] === 255) at += 1;
  return at < input.length ? at + 1 : undefined;
}

function sumBytes(input: Buffer, from: number, to: number): number {
  return (to - from - 1) * 255 + (input[to - 1] ?? 0);
}

/** The source may overlap what is being written: then it repeats itself. */
function copyMatch(output: Buffer, at: number, { distance, length }: { readonly distance: number; readonly length: number }): void {
  let done = 0;
  while (done < length) {
    const piece = Math.min(length - done, distance + done);
    output.copyWithin(at + done, at - distance, at - distance + piece);
    done += piece;
  }
}

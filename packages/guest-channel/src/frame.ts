/**
 * The frame codec: bytes in, frames out, no I/O. `native/guest-agent/src/frame.rs` is the same in Rust, and both are
 * checked against `fixtures/frames.json`.
 *
 * A frame is 28 bytes of header, little-endian, then the payload:
 *
 *     0 magic u32 "FXM1"   4 type u8   5 flags u8 (0)   6 length u16 (<= 32768)   8 epoch u32
 *     12 stream u32        16 offset u64                24 CRC-32 u32 of bytes 0..24 and the payload
 *
 * Two states. `hunting`, until the guest has answered: what comes may be the tail of an earlier conversation, cut
 * anywhere, so bytes that are no frame are skipped, and a frame of the awaited type is taken even from inside one that
 * is not complete. `strict`, afterwards: one byte that is in no frame is a violation.
 *
 * The bytes are the guest's and hostile: what is held is bounded by one frame, and so is the work that garbage can cause.
 */
import { PlatformError } from "@fluxvm/core";
import { crc32 } from "node:zlib";

export const FRAME_HEADER_BYTES = 28;
export const MAX_FRAME_PAYLOAD_BYTES = 32 * 1024;
/** Checksums over garbage before the reader gives up: a guest could make each cost 32 KiB of work. */
const MAX_FALSE_FRAMES = 1024;
/** Garbage before the first frame: more than any queue between the guest and us holds. */
const MAX_SKIPPED_BYTES = 4 * 1024 * 1024;

const MAGIC = 0x314d5846;
const MAGIC_BYTES = Buffer.from("FXM1", "latin1");

export const FRAME_TYPE = {
  hello: 1,
  welcome: 2,
  refused: 3,
  open: 4,
  data: 5,
  window: 6,
  fin: 7,
  reset: 8,
  ping: 9,
  pong: 10,
} as const;

export interface Frame {
  readonly type: number;
  readonly epoch: number;
  readonly stream: number;
  /** Bytes of the stream before this frame's, or what the type makes of it. At most 2^53. */
  readonly offset: number;
  /** A view: valid as long as nobody writes to it, and nobody does. */
  readonly payload: Uint8Array;
}

export function encodeFrame(frame: Frame): Buffer {
  const length = frame.payload.length;
  if (length > MAX_FRAME_PAYLOAD_BYTES) throw new RangeError(`a frame's payload is ${length} bytes, at most ${MAX_FRAME_PAYLOAD_BYTES}`);
  const out = Buffer.allocUnsafe(FRAME_HEADER_BYTES + length);
  out.writeUInt32LE(MAGIC, 0);
  out.writeUInt8(frame.type, 4);
  out.writeUInt8(0, 5);
  out.writeUInt16LE(length, 6);
  out.writeUInt32LE(frame.epoch, 8);
  out.writeUInt32LE(frame.stream, 12);
  out.writeUInt32LE(frame.offset % 2 ** 32, 16);
  out.writeUInt32LE(Math.floor(frame.offset / 2 ** 32), 20);
  out.set(frame.payload, FRAME_HEADER_BYTES);
  out.writeUInt32LE(crc32(out.subarray(FRAME_HEADER_BYTES), crc32(out.subarray(0, 24))), 24);
  return out;
}

type Candidate = Frame | "incomplete" | "wrong";

/** What is at `at`, where the magic is. */
function decodeAt(bytes: Buffer, at: number): Candidate {
  if (bytes.length - at < FRAME_HEADER_BYTES) return "incomplete";
  const length = bytes.readUInt16LE(at + 6);
  if (length > MAX_FRAME_PAYLOAD_BYTES) return "wrong";
  const end = at + FRAME_HEADER_BYTES + length;
  if (bytes.length < end) return "incomplete";
  const payload = bytes.subarray(at + FRAME_HEADER_BYTES, end);
  if (crc32(payload, crc32(bytes.subarray(at, at + 24))) !== bytes.readUInt32LE(at + 24)) return "wrong";
  const offset = bytes.readUInt32LE(at + 20) * 2 ** 32 + bytes.readUInt32LE(at + 16);
  if (!Number.isSafeInteger(offset)) return "wrong";
  return { type: bytes.readUInt8(at + 4), epoch: bytes.readUInt32LE(at + 8), stream: bytes.readUInt32LE(at + 12), offset, payload };
}

/** Where the magic is, or may begin at the very end; the length when nowhere. */
function findMagic(bytes: Buffer, from: number): number {
  const found = bytes.indexOf(MAGIC_BYTES, from);
  if (found >= 0) return found;
  for (let at = Math.max(from, bytes.length - 3); at < bytes.length; at += 1) {
    if (MAGIC_BYTES.subarray(0, bytes.length - at).equals(bytes.subarray(at))) return at;
  }
  return bytes.length;
}

export class FrameReader {
  #held: Buffer = Buffer.alloc(0);
  /** The types looked for inside an incomplete frame; `undefined` is strict. */
  #hunt: ReadonlySet<number> | undefined;
  #hunted = 0;
  #skipped = 0;
  #falseFrames = 0;

  constructor(options: { readonly hunt: readonly number[] }) {
    this.#hunt = new Set(options.hunt);
  }

  /** From now on every byte must belong to a frame. */
  setStrict(): void {
    this.#hunt = undefined;
  }

  /** Bytes that belonged to no frame. */
  get skippedBytes(): number {
    return this.#skipped;
  }

  get heldBytes(): number {
    return this.#held.length;
  }

  push(chunk: Uint8Array): void {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    this.#held = this.#held.length === 0 ? bytes : Buffer.concat([this.#held, bytes]);
  }

  /** The next whole frame. @throws PlatformError `AGENT_PROTOCOL` for a byte that is in no frame, when strict. */
  next(): Frame | undefined {
    let from = 0;
    for (;;) {
      const at = findMagic(this.#held, from);
      if (at > 0 && this.#hunt === undefined) throw violation("bytes that belong to no frame");
      if (this.#held.length - at < MAGIC_BYTES.length) {
        this.#skip(at);
        return undefined;
      }
      const candidate = decodeAt(this.#held, at);
      if (candidate === "wrong") {
        this.#countFalseFrame();
        from = at + 1;
        continue;
      }
      this.#skip(at);
      if (candidate === "incomplete") return this.#huntInside();
      return this.#take(candidate);
    }
  }

  #take(frame: Frame): Frame {
    this.#held = this.#held.subarray(FRAME_HEADER_BYTES + frame.payload.length);
    this.#hunted = 0;
    return frame;
  }

  #skip(count: number): void {
    if (count === 0) return;
    this.#skipped += count;
    this.#held = this.#held.subarray(count);
    this.#hunted = 0;
    if (this.#skipped > MAX_SKIPPED_BYTES) throw violation("too many bytes that belong to no frame");
  }

  #countFalseFrame(): void {
    if (this.#hunt === undefined) throw violation("a frame with a wrong checksum");
    this.#falseFrames += 1;
    if (this.#falseFrames > MAX_FALSE_FRAMES) throw violation("too many frames with a wrong checksum");
  }

  #huntInside(): Frame | undefined {
    if (this.#hunt === undefined) return undefined;
    let settled = true;
    for (let from = Math.max(this.#hunted, 1); ;) {
      const at = findMagic(this.#held, from);
      if (settled) this.#hunted = at;
      if (this.#held.length - at < FRAME_HEADER_BYTES) return undefined;
      if (this.#hunt.has(this.#held.readUInt8(at + 4))) {
        const candidate = decodeAt(this.#held, at);
        if (candidate === "incomplete") settled = false;
        else if (candidate === "wrong") this.#countFalseFrame();
        else {
          this.#skip(at);
          return this.#take(candidate);
        }
      }
      from = at + 1;
    }
  }
}

function violation(what: string): PlatformError {
  return new PlatformError("AGENT_PROTOCOL", `The guest agent broke the protocol: ${what}`);
}

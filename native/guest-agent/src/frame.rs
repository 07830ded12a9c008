//! The frame codec: bytes in, frames out, no I/O. `packages/guest-channel/src/frame.ts` is the same in TypeScript, and
//! both are checked against `packages/guest-channel/fixtures/frames.json`.
//!
//! A frame is 28 bytes of header, little-endian, then the payload:
//!
//! ```text
//! 0 magic u32 "FXM1"   4 type u8   5 flags u8 (0)   6 length u16 (<= 32768)   8 epoch u32
//! 12 stream u32        16 offset u64                24 CRC-32 u32 of bytes 0..24 and the payload
//! ```
//!
//! A virtio-serial port that its host end closed and reopened loses bytes without a word, so the reader takes nothing for
//! granted: it looks for the magic, believes a frame only when the CRC fits, and otherwise goes one byte further. A frame
//! whose tail was lost would make it wait for bytes that belong to later frames; so while it waits, it also looks inside
//! what it has for a whole frame of the one type that begins a connection (`hunt`), and takes that.
//! Bound: one frame and what one read brought.

use alloc::vec::Vec;

use crate::crc::crc32;

pub const MAGIC: [u8; 4] = *b"FXM1";
pub const HEADER_BYTES: usize = 28;
pub const MAX_PAYLOAD_BYTES: usize = 32 * 1024;

pub const HELLO: u8 = 1;
pub const WELCOME: u8 = 2;
pub const REFUSED: u8 = 3;
pub const OPEN: u8 = 4;
pub const DATA: u8 = 5;
pub const WINDOW: u8 = 6;
pub const FIN: u8 = 7;
pub const RESET: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub epoch: u32,
    pub stream: u32,
    pub offset: u64,
    pub payload: Vec<u8>,
}

/// Appends a frame. The payload is at most `MAX_PAYLOAD_BYTES`: a longer one is a bug of ours.
pub fn encode(out: &mut Vec<u8>, kind: u8, epoch: u32, stream: u32, offset: u64, payload: &[u8]) {
    encode_parts(out, kind, epoch, stream, offset, [payload, &[]]);
}

/// The same for a payload that lies in two pieces, as in a ring buffer.
pub fn encode_parts(out: &mut Vec<u8>, kind: u8, epoch: u32, stream: u32, offset: u64, payload: [&[u8]; 2]) {
    let length = payload[0].len() + payload[1].len();
    assert!(length <= MAX_PAYLOAD_BYTES);
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[kind, 0]);
    out.extend_from_slice(&(length as u16).to_le_bytes());
    out.extend_from_slice(&epoch.to_le_bytes());
    out.extend_from_slice(&stream.to_le_bytes());
    out.extend_from_slice(&offset.to_le_bytes());
    let crc = payload.iter().fold(crc32(0, &out[start..]), |crc, part| crc32(crc, part));
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(payload[0]);
    out.extend_from_slice(payload[1]);
}

enum Candidate {
    Frame(Frame),
    Incomplete,
    Wrong,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// What the bytes begin with. They begin with the magic.
fn decode(bytes: &[u8]) -> Candidate {
    if bytes.len() < HEADER_BYTES {
        return Candidate::Incomplete;
    }
    let length = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
    if length > MAX_PAYLOAD_BYTES {
        return Candidate::Wrong;
    }
    let Some(payload) = bytes.get(HEADER_BYTES..HEADER_BYTES + length) else {
        return Candidate::Incomplete;
    };
    if crc32(crc32(0, &bytes[..24]), payload) != u32_at(bytes, 24) {
        return Candidate::Wrong;
    }
    let offset = u64::from(u32_at(bytes, 16)) | u64::from(u32_at(bytes, 20)) << 32;
    Candidate::Frame(Frame { kind: bytes[4], epoch: u32_at(bytes, 8), stream: u32_at(bytes, 12), offset, payload: payload.to_vec() })
}

/// Offset of the next place where the magic is, or may begin at the very end.
fn find_magic(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < bytes.len() {
        let seen = (bytes.len() - at).min(MAGIC.len());
        if bytes[at..at + seen] == MAGIC[..seen] {
            return at;
        }
        at += 1;
    }
    bytes.len()
}

pub struct Reader {
    buffer: Vec<u8>,
    /// Bytes at the front of `buffer` that are done with; taken out at the next `push`, not per frame.
    start: usize,
    /// Type that is also looked for inside a frame that is not complete.
    hunt: u8,
    hunted: usize,
    skipped: u64,
}

impl Reader {
    pub fn new(hunt: u8) -> Reader {
        Reader { buffer: Vec::new(), start: 0, hunt, hunted: 0, skipped: 0 }
    }

    /// Bytes thrown away so far because they belonged to no frame.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Bytes held that are not a whole frame yet. Bounded by a frame once `next` returned `None`.
    pub fn held(&self) -> usize {
        self.buffer.len() - self.start
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    fn discard(&mut self, count: usize) {
        self.start += count;
        self.hunted = 0;
    }

    /// The next frame, if it is complete. Call until `None` after each `push`.
    pub fn next_frame(&mut self) -> Option<Frame> {
        let mut at = 0;
        loop {
            let held = &self.buffer[self.start..];
            let start = find_magic(held, at);
            if held.len() - start < MAGIC.len() {
                self.skipped += start as u64;
                self.discard(start);
                return None;
            }
            match decode(&held[start..]) {
                Candidate::Frame(frame) => {
                    self.skipped += start as u64;
                    self.discard(start + HEADER_BYTES + frame.payload.len());
                    return Some(frame);
                }
                Candidate::Wrong => at = start + 1,
                Candidate::Incomplete => {
                    if start > 0 {
                        self.skipped += start as u64;
                        self.discard(start);
                    }
                    return self.hunt_inside();
                }
            }
        }
    }

    fn hunt_inside(&mut self) -> Option<Frame> {
        let mut at = self.hunted.max(1);
        let mut settled = true;
        loop {
            let held = &self.buffer[self.start..];
            let start = find_magic(held, at);
            if settled {
                self.hunted = start;
            }
            if held.len() - start < HEADER_BYTES {
                return None;
            }
            if held[start + 4] == self.hunt {
                match decode(&held[start..]) {
                    Candidate::Frame(frame) => {
                        self.skipped += start as u64;
                        self.discard(start + HEADER_BYTES + frame.payload.len());
                        return Some(frame);
                    }
                    Candidate::Incomplete => settled = false,
                    Candidate::Wrong => {}
                }
            }
            at = start + 1;
        }
    }
}

#[cfg(test)]
mod tests;

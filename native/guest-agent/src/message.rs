//! Messages inside a stream: length u32, kind u8, body. `packages/guest-protocol/src/message.ts` is the other side.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::failure::Failure;

pub const JSON: u8 = 0;
pub const STDIN: u8 = 1;
pub const STDOUT: u8 = 2;
pub const STDERR: u8 = 3;
pub const FILE: u8 = 4;

pub const HEADER_BYTES: usize = 5;
/// Below the stream's window, so that a whole message always fits into what may be outstanding.
pub const MAX_BODY_BYTES: usize = 128 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: u8,
    pub body: Vec<u8>,
}

pub fn header(kind: u8, length: usize) -> [u8; HEADER_BYTES] {
    let [a, b, c, d] = (length as u32).to_le_bytes();
    [a, b, c, d, kind]
}

/// Bytes that precede those of an output or input message.
pub fn offset_header(kind: u8, offset: u64, count: usize) -> [u8; HEADER_BYTES + 8] {
    let mut out = [0; HEADER_BYTES + 8];
    out[..HEADER_BYTES].copy_from_slice(&header(kind, count + 8));
    out[HEADER_BYTES..].copy_from_slice(&offset.to_le_bytes());
    out
}

/// The size of the message at the front, header included, if its header is there.
pub fn peek(bytes: &VecDeque<u8>) -> Result<Option<usize>, Failure> {
    if bytes.len() < HEADER_BYTES {
        return Ok(None);
    }
    let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    if length > MAX_BODY_BYTES {
        return Err(Failure::new("AGENT_PROTOCOL", "A message is longer than the protocol allows"));
    }
    Ok(Some(HEADER_BYTES + length))
}

/// Moves `count` bytes off the front. (`drain().collect()` goes byte by byte.)
pub fn take_front(bytes: &mut VecDeque<u8>, count: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(count);
    let (front, back) = bytes.as_slices();
    let split = count.min(front.len());
    out.extend_from_slice(&front[..split]);
    out.extend_from_slice(&back[..count - split]);
    bytes.drain(..count);
    out
}

/// Takes the message at the front if all of it is there.
pub fn take(bytes: &mut VecDeque<u8>) -> Result<Option<Message>, Failure> {
    let Some(size) = peek(bytes)?.filter(|size| *size <= bytes.len()) else {
        return Ok(None);
    };
    let kind = bytes[4];
    bytes.drain(..HEADER_BYTES);
    Ok(Some(Message { kind, body: take_front(bytes, size - HEADER_BYTES) }))
}

/// Splits the body of an input or output message.
pub fn split_offset(body: &[u8]) -> Option<(u64, &[u8])> {
    let (offset, bytes) = body.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*offset), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_the_whole_message() {
        let mut wire: VecDeque<u8> = VecDeque::new();
        let mut bytes = offset_header(STDIN, 77, 3).to_vec();
        bytes.extend_from_slice(b"abc");
        for byte in &bytes {
            assert_eq!(take(&mut wire), Ok(None));
            wire.push_back(*byte);
        }
        let message = take(&mut wire).expect("fine").expect("complete");
        assert_eq!(message.kind, STDIN);
        assert_eq!(split_offset(&message.body), Some((77, &b"abc"[..])));
        assert!(wire.is_empty());
        assert_eq!(split_offset(b"short"), None);
    }

    #[test]
    fn refuses_a_message_that_is_too_long() {
        let mut wire: VecDeque<u8> = header(JSON, MAX_BODY_BYTES + 1).into();
        assert_eq!(take(&mut wire).unwrap_err().code, "AGENT_PROTOCOL");
    }
}

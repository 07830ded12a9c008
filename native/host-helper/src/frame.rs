//! Frames: a little-endian u32 length, then that many bytes of JSON. No I/O here.

/// The largest frame taken in either direction.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub struct FrameTooLarge(pub usize);

/// Takes bytes in any cut and gives whole frames back.
#[derive(Default)]
pub struct Decoder {
    buffer: Vec<u8>,
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, `None` when more bytes are needed.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, FrameTooLarge> {
        let Some(header) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*header) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(FrameTooLarge(length));
        }
        if self.buffer.len() < 4 + length {
            return Ok(None);
        }
        let frame = self.buffer[4..4 + length].to_vec();
        self.buffer.drain(..4 + length);
        Ok(Some(frame))
    }
}

pub fn encode(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + payload.len());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(payload);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_cut() {
        let stream: Vec<u8> = [encode(b"one"), encode(b""), encode(b"three")].concat();
        for cut in 0..stream.len() {
            let mut decoder = Decoder::default();
            let mut frames = Vec::new();
            for part in [&stream[..cut], &stream[cut..]] {
                decoder.push(part);
                while let Some(frame) = decoder.next().unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames, vec![b"one".to_vec(), b"".to_vec(), b"three".to_vec()], "cut at {cut}");
        }
    }

    #[test]
    fn an_absurd_length_is_refused_before_any_payload() {
        let mut decoder = Decoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        assert_eq!(decoder.next(), Err(FrameTooLarge(u32::MAX as usize)));
    }
}

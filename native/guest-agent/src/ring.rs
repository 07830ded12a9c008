//! What a process wrote and its consumer has not acknowledged yet, addressed by the byte's number since the start.
//!
//! ```text
//!   released            retained (<= bound)            not written yet
//! 0 ......... start ----------------------------- end ................
//! ```
//! `start` and `end` never go back. Full means that the producer is not read any more, unless it is a ring that drops.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub struct Ring {
    bytes: VecDeque<u8>,
    start: u64,
}

impl Default for Ring {
    fn default() -> Ring {
        Ring::new()
    }
}

impl Ring {
    pub fn new() -> Ring {
        Ring { bytes: VecDeque::new(), start: 0 }
    }

    pub fn start(&self) -> u64 {
        self.start
    }

    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Everything before `offset` will not be asked for again. Older or future offsets release what there is.
    pub fn release(&mut self, offset: u64) {
        let count = offset.saturating_sub(self.start).min(self.bytes.len() as u64);
        self.bytes.drain(..count as usize);
        self.start += count;
        if self.bytes.is_empty() {
            self.bytes = VecDeque::new();
        }
    }

    /// Up to `count` bytes from `offset`, which is retained.
    pub fn copy(&self, offset: u64, count: usize) -> Vec<u8> {
        let from = (offset.max(self.start) - self.start) as usize;
        let to = (from + count).min(self.bytes.len());
        let mut out = Vec::with_capacity(to.saturating_sub(from));
        if from < to {
            let (front, back) = self.bytes.as_slices();
            if from < front.len() {
                out.extend_from_slice(&front[from..to.min(front.len())]);
            }
            if to > front.len() {
                out.extend_from_slice(&back[from.saturating_sub(front.len())..to - front.len()]);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_from_the_acknowledged_offset_on() {
        let mut ring = Ring::new();
        ring.push(b"hello ");
        ring.push(b"world");
        ring.release(3);
        ring.release(1);
        assert_eq!((ring.start(), ring.end()), (3, 11));
        assert_eq!(ring.copy(3, 4), b"lo w");
        assert_eq!(ring.copy(9, 100), b"ld");
        assert_eq!(ring.copy(11, 100), b"");
        ring.release(1000);
        assert_eq!((ring.start(), ring.end(), ring.len()), (11, 11, 0));
    }

    #[test]
    fn every_byte_comes_out_once_however_it_wraps() {
        let mut ring = Ring::new();
        let (mut written, mut read) = (0u64, 0u64);
        let mut state = 9u32;
        while read < 200_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let count = (state >> 20) as usize % 700;
            if ring.len() < 4096 {
                let bytes: Vec<u8> = (written..written + count as u64).map(|i| (i % 251) as u8).collect();
                ring.push(&bytes);
                written += count as u64;
            }
            let out = ring.copy(read, count);
            for byte in &out {
                assert_eq!(u64::from(*byte), read % 251);
                read += 1;
            }
            ring.release(read);
        }
        assert_eq!(ring.end(), written);
    }
}

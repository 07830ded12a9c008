//! What the daemon sends on standard input: the decompressed layers, in order.
//!
//! ```text
//! 'D' u32be bytes…   data of the layer under way, at most MAX_CHUNK
//! 'E' 0              the layer is complete (its digest was right)
//! 'F' 0              no more layers
//! ```
//! An end of the input before 'F' means that the daemon gave up or died: nothing may be kept.
use super::failure::{Failure, Kind, Outcome};
use std::io::Read;

pub const MAX_CHUNK: u32 = 1 << 20;

pub struct LayerStream<R: Read> {
    input: R,
    /// Bytes of the chunk under way that were not read yet.
    left: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Between,
    InLayer,
    Finished,
}

impl<R: Read> LayerStream<R> {
    pub fn new(input: R) -> LayerStream<R> {
        LayerStream { input, left: 0, state: State::Between }
    }

    /// Whether another layer begins. Reading it ends with 0 at its end.
    pub fn next_layer(&mut self) -> Outcome<bool> {
        self.drain()?;
        match self.header()? {
            (b'F', 0) => {
                self.state = State::Finished;
                Ok(false)
            }
            (b'E', 0) => {
                self.state = State::Between;
                // An empty layer: no data at all.
                Ok(true)
            }
            (b'D', length) => {
                self.state = State::InLayer;
                self.left = length;
                Ok(true)
            }
            _ => Err(protocol()),
        }
    }

    /// Reads layer bytes; 0 only at the layer's end.
    pub fn read_layer(&mut self, buffer: &mut [u8]) -> Outcome<usize> {
        while self.left == 0 {
            if self.state != State::InLayer {
                return Ok(0);
            }
            match self.header()? {
                (b'D', length) => self.left = length,
                (b'E', 0) => self.state = State::Between,
                _ => return Err(protocol()),
            }
        }
        let want = buffer.len().min(self.left as usize);
        let count = read_some(&mut self.input, &mut buffer[..want])?;
        if count == 0 {
            return Err(gone());
        }
        self.left -= count as u32;
        Ok(count)
    }

    /// Consumes the rest of the layer under way.
    fn drain(&mut self) -> Outcome<()> {
        let mut buffer = [0u8; 16 << 10];
        while self.read_layer(&mut buffer)? > 0 {}
        Ok(())
    }

    fn header(&mut self) -> Outcome<(u8, u32)> {
        let mut header = [0u8; 5];
        let mut done = 0;
        while done < header.len() {
            let count = read_some(&mut self.input, &mut header[done..])?;
            if count == 0 {
                return Err(gone());
            }
            done += count;
        }
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]);
        if length > MAX_CHUNK {
            return Err(protocol());
        }
        Ok((header[0], length))
    }
}

fn read_some<R: Read>(input: &mut R, buffer: &mut [u8]) -> Outcome<usize> {
    loop {
        match input.read(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            result => return result.map_err(|e| Failure::io("read layers", &e)),
        }
    }
}

fn gone() -> Failure {
    Failure::new(Kind::Cancelled, "the layers end before they are complete")
}

fn protocol() -> Failure {
    Failure::new(Kind::System, "the layers are framed wrongly")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(parts: &[(u8, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, data) in parts {
            out.push(*kind);
            out.extend_from_slice(&(data.len() as u32).to_be_bytes());
            out.extend_from_slice(data);
        }
        out
    }

    fn read_all(stream: &mut LayerStream<&[u8]>) -> Outcome<Vec<u8>> {
        let mut out = Vec::new();
        let mut buffer = [0u8; 3];
        loop {
            let count = stream.read_layer(&mut buffer)?;
            if count == 0 {
                return Ok(out);
            }
            out.extend_from_slice(&buffer[..count]);
        }
    }

    #[test]
    fn layers_come_one_after_another() {
        let bytes = frames(&[(b'D', b"hello "), (b'D', b"world"), (b'E', b""), (b'E', b""), (b'D', b"x"), (b'E', b""), (b'F', b"")]);
        let mut stream = LayerStream::new(bytes.as_slice());
        assert!(stream.next_layer().unwrap());
        assert_eq!(read_all(&mut stream).unwrap(), b"hello world");
        assert!(stream.next_layer().unwrap());
        assert_eq!(read_all(&mut stream).unwrap(), b"");
        assert!(stream.next_layer().unwrap());
        assert_eq!(read_all(&mut stream).unwrap(), b"x");
        assert!(!stream.next_layer().unwrap());
    }

    #[test]
    fn what_was_not_read_is_skipped() {
        let bytes = frames(&[(b'D', b"hello "), (b'D', b"world"), (b'E', b""), (b'D', b"x"), (b'E', b""), (b'F', b"")]);
        let mut stream = LayerStream::new(bytes.as_slice());
        assert!(stream.next_layer().unwrap());
        assert!(stream.next_layer().unwrap());
        assert_eq!(read_all(&mut stream).unwrap(), b"x");
    }

    #[test]
    fn an_early_end_is_a_cancellation_wherever_it_comes() {
        let bytes = frames(&[(b'D', b"hello"), (b'E', b""), (b'F', b"")]);
        for cut in 0..bytes.len() {
            let mut stream = LayerStream::new(&bytes[..cut]);
            let result = stream.next_layer().and_then(|_| read_all(&mut stream)).and_then(|_| stream.next_layer());
            assert_eq!(result.unwrap_err().kind, Kind::Cancelled, "cut at {cut}");
        }
    }

    #[test]
    fn wrong_frames_are_refused() {
        for bytes in [b"X\0\0\0\0".as_slice(), b"D\xff\0\0\0", b"F\0\0\0\x01"] {
            assert_eq!(LayerStream::new(bytes).next_layer().unwrap_err().kind, Kind::System);
        }
    }
}

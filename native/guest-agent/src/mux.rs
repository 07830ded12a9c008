//! The streams of one connection and their windows. No I/O: frames go in, bytes to send come out.
//!
//! ```text
//!                OPEN                 our FIN sent
//!   (none) ─────────────► open ──────────────────────► finishing
//!                          │ ▲ DATA, WINDOW both ways      │ host's FIN seen
//!                  RESET   ▼                               ▼
//!                        (none) ◄──────────────────────────┘
//! ```
//! Only the host opens streams, with numbers that rise. Each direction counts its bytes from 0; a sender has at most
//! `WINDOW_BYTES` beyond what the receiver said it consumed. A stream that breaks the rules is reset alone.
//! Sending is fair: one frame per stream and turn. A new epoch forgets every stream.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::failure::Failure;
use crate::frame::{self, Frame};
use crate::json::Value;
use crate::message;

pub const WINDOW_BYTES: u64 = 256 * 1024;
pub const MAX_STREAMS: usize = 256;
/// Bytes of a stream that are made ahead of what the window lets go.
pub const TX_TARGET_BYTES: usize = 64 * 1024;
const FRAME_BYTES: usize = 32 * 1024;

#[derive(Default)]
pub struct Stream {
    rx: VecDeque<u8>,
    rx_end: u64,
    rx_announced: u64,
    rx_fin: bool,
    tx: VecDeque<u8>,
    tx_sent: u64,
    tx_limit: u64,
    tx_fin: bool,
    tx_fin_sent: bool,
}

impl Stream {
    /// What the host sent and nobody took yet.
    pub fn rx(&mut self) -> &mut VecDeque<u8> {
        &mut self.rx
    }

    /// The host has sent its last byte and all were taken.
    pub fn is_input_over(&self) -> bool {
        self.rx_fin && self.rx.is_empty()
    }

    pub fn wants_output(&self) -> bool {
        !self.tx_fin && self.tx.len() < TX_TARGET_BYTES
    }

    pub fn send_json(&mut self, value: &Value) {
        self.send_reply(&value.to_bytes());
    }

    /// JSON that is text already.
    pub fn send_reply(&mut self, json: &[u8]) {
        self.tx.extend(message::header(message::JSON, json.len()));
        self.tx.extend(json);
    }

    pub fn send_offset(&mut self, kind: u8, offset: u64, bytes: &[u8]) {
        self.tx.extend(message::offset_header(kind, offset, bytes.len()));
        self.tx.extend(bytes);
    }

    pub fn send_file(&mut self, bytes: &[u8]) {
        self.tx.extend(message::header(message::FILE, bytes.len()));
        self.tx.extend(bytes);
    }

    /// No more will be sent; what is queued goes out first.
    pub fn finish(&mut self) {
        self.tx_fin = true;
    }

    fn is_sendable(&self) -> bool {
        (!self.tx.is_empty() && self.tx_sent < self.tx_limit) || (self.tx_fin && self.tx.is_empty() && !self.tx_fin_sent)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Opened(u32, Vec<u8>),
    /// The stream is gone, by the host's wish or because it broke the rules.
    Closed(u32),
    Nothing,
}

pub struct Mux {
    epoch: u32,
    streams: BTreeMap<u32, Stream>,
    highest: u32,
    turn: u32,
    control: Vec<u8>,
}

impl Mux {
    pub fn new(epoch: u32) -> Mux {
        Mux { epoch, streams: BTreeMap::new(), highest: 0, turn: 0, control: Vec::new() }
    }

    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    pub fn get(&mut self, id: u32) -> Option<&mut Stream> {
        self.streams.get_mut(&id)
    }

    /// A frame outside any stream, sent before stream data.
    pub fn send_control(&mut self, kind: u8, stream: u32, offset: u64, payload: &[u8]) {
        frame::encode(&mut self.control, kind, self.epoch, stream, offset, payload);
    }

    /// Answers that the host has not taken; above a bound its frames are not read.
    pub fn control_bytes(&self) -> usize {
        self.control.len()
    }

    pub fn reset(&mut self, id: u32, failure: Failure) {
        self.streams.remove(&id);
        self.send_control(frame::RESET, id, 0, &Value::from(failure).to_bytes());
    }

    pub fn on_frame(&mut self, frame: Frame) -> Event {
        if frame.epoch != self.epoch {
            return Event::Nothing;
        }
        match frame.kind {
            frame::OPEN => self.on_open(frame),
            frame::DATA => self.on_data(&frame),
            frame::FIN => self.on_fin(&frame),
            frame::WINDOW => {
                if let Some(stream) = self.streams.get_mut(&frame.stream) {
                    if frame.offset <= stream.tx_sent {
                        stream.tx_limit = stream.tx_limit.max(frame.offset + WINDOW_BYTES);
                    }
                }
                Event::Nothing
            }
            frame::RESET => match self.streams.remove(&frame.stream) {
                Some(_) => Event::Closed(frame.stream),
                None => Event::Nothing,
            },
            frame::PING => {
                self.send_control(frame::PONG, 0, frame.offset, &[]);
                Event::Nothing
            }
            _ => Event::Nothing,
        }
    }

    fn on_open(&mut self, frame: Frame) -> Event {
        let id = frame.stream;
        if id <= self.highest {
            self.reset(id, Failure::new("AGENT_PROTOCOL", "A stream number was used again"));
            return Event::Closed(id);
        }
        self.highest = id;
        if self.streams.len() >= MAX_STREAMS {
            self.reset(id, Failure::new("QUEUE_FULL", "Too many requests to the guest agent at once"));
            return Event::Nothing;
        }
        self.streams.insert(id, Stream { tx_limit: WINDOW_BYTES, ..Stream::default() });
        Event::Opened(id, frame.payload)
    }

    fn on_data(&mut self, frame: &Frame) -> Event {
        let Some(stream) = self.streams.get_mut(&frame.stream) else {
            return Event::Nothing;
        };
        let end = stream.rx_end + frame.payload.len() as u64;
        if frame.offset != stream.rx_end || stream.rx_fin || end > stream.rx_announced + WINDOW_BYTES {
            self.reset(frame.stream, Failure::new("AGENT_PROTOCOL", "Stream data is out of order or beyond the window"));
            return Event::Closed(frame.stream);
        }
        stream.rx_end = end;
        if !stream.tx_fin {
            stream.rx.extend(&frame.payload); // after our FIN nobody reads it
        }
        Event::Nothing
    }

    fn on_fin(&mut self, frame: &Frame) -> Event {
        let Some(stream) = self.streams.get_mut(&frame.stream) else {
            return Event::Nothing;
        };
        if frame.offset != stream.rx_end {
            self.reset(frame.stream, Failure::new("AGENT_PROTOCOL", "A stream ended at another place than its data"));
            return Event::Closed(frame.stream);
        }
        stream.rx_fin = true;
        self.drop_if_over(frame.stream);
        Event::Nothing
    }

    fn drop_if_over(&mut self, id: u32) {
        if self.streams.get(&id).is_some_and(|s| s.rx_fin && s.tx_fin_sent) {
            self.streams.remove(&id);
        }
    }

    /// Tells the host what was taken, when that is worth a frame.
    fn announce(&mut self) {
        let (epoch, control) = (self.epoch, &mut self.control);
        for (id, stream) in &mut self.streams {
            if stream.tx_fin {
                stream.rx.clear();
            }
            let consumed = stream.rx_end - stream.rx.len() as u64;
            if !stream.rx_fin && consumed - stream.rx_announced >= WINDOW_BYTES / 4 {
                stream.rx_announced = consumed;
                frame::encode(control, frame::WINDOW, epoch, *id, consumed, &[]);
            }
        }
    }

    /// Moves what may be sent into `out` until that holds `bound` bytes. True if anything was moved.
    pub fn fill(&mut self, out: &mut Vec<u8>, bound: usize) -> bool {
        let before = out.len();
        self.announce();
        out.append(&mut self.control);
        while out.len() < bound {
            let after = self.streams.range(self.turn.wrapping_add(1)..).find(|(_, s)| s.is_sendable());
            let Some(id) = after.or_else(|| self.streams.iter().find(|(_, s)| s.is_sendable())).map(|(id, _)| *id) else {
                break;
            };
            self.turn = id;
            self.send_one(id, out);
        }
        out.len() > before
    }

    fn send_one(&mut self, id: u32, out: &mut Vec<u8>) {
        let epoch = self.epoch;
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let count = (stream.tx_limit - stream.tx_sent).min(stream.tx.len() as u64).min(FRAME_BYTES as u64) as usize;
        if count > 0 {
            let (front, back) = stream.tx.as_slices();
            let split = count.min(front.len());
            frame::encode_parts(out, frame::DATA, epoch, id, stream.tx_sent, [&front[..split], &back[..count - split]]);
            stream.tx.drain(..count);
            stream.tx_sent += count as u64;
        }
        if stream.tx_fin && stream.tx.is_empty() && !stream.tx_fin_sent {
            frame::encode(out, frame::FIN, epoch, id, stream.tx_sent, &[]);
            stream.tx_fin_sent = true;
            self.drop_if_over(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{DATA, FIN, OPEN, PING, RESET, Reader, WINDOW};

    fn host(kind: u8, stream: u32, offset: u64, payload: &[u8]) -> Frame {
        Frame { kind, epoch: 5, stream, offset, payload: payload.to_vec() }
    }

    fn sent(mux: &mut Mux, bound: usize) -> Vec<Frame> {
        let mut out = Vec::new();
        mux.fill(&mut out, bound);
        let mut reader = Reader::new(0);
        reader.push(&out);
        core::iter::from_fn(|| reader.next_frame()).collect()
    }

    #[test]
    fn a_request_and_its_answer() {
        let mut mux = Mux::new(5);
        assert_eq!(mux.on_frame(host(OPEN, 1, 0, b"req")), Event::Opened(1, b"req".to_vec()));
        mux.on_frame(host(FIN, 1, 0, b""));
        let stream = mux.get(1).expect("open");
        assert!(stream.is_input_over());
        stream.send_json(&Value::Bool(true));
        stream.finish();
        let frames = sent(&mut mux, 1 << 20);
        assert_eq!(frames.iter().map(|f| f.kind).collect::<Vec<_>>(), [DATA, FIN]);
        assert_eq!(frames[0].payload, b"\x04\0\0\0\0true");
        assert!(mux.get(1).is_none());
    }

    #[test]
    fn frames_of_another_epoch_are_dropped() {
        let mut mux = Mux::new(6);
        assert_eq!(mux.on_frame(host(OPEN, 1, 0, b"req")), Event::Nothing);
        mux.on_frame(host(PING, 0, 0, b""));
        assert_eq!(sent(&mut mux, 1 << 20), []);
    }

    #[test]
    fn sends_no_more_than_the_window_and_goes_on_when_it_opens() {
        let mut mux = Mux::new(5);
        mux.on_frame(host(OPEN, 1, 0, b""));
        mux.get(1).expect("open").send_file(&vec![1; 300_000]);
        let first: usize = sent(&mut mux, 1 << 20).iter().map(|f| f.payload.len()).sum();
        assert_eq!(first as u64, WINDOW_BYTES);
        // A host that claims to have consumed what was never sent gets nothing for it.
        mux.on_frame(host(WINDOW, 1, WINDOW_BYTES + 1, b""));
        assert_eq!(sent(&mut mux, 1 << 20), []);
        mux.on_frame(host(WINDOW, 1, 100_000, b""));
        let second: usize = sent(&mut mux, 1 << 20).iter().map(|f| f.payload.len()).sum();
        assert_eq!(first + second, 300_005);
    }

    #[test]
    fn breaking_the_rules_resets_that_stream_alone() {
        for bad in [host(DATA, 1, 5, b"x"), host(FIN, 1, 1, b""), host(OPEN, 1, 0, b"")] {
            let mut mux = Mux::new(5);
            mux.on_frame(host(OPEN, 1, 0, b""));
            mux.on_frame(host(OPEN, 2, 0, b""));
            assert_eq!(mux.on_frame(bad), Event::Closed(1));
            assert!(mux.get(2).is_some());
            assert_eq!(sent(&mut mux, 1 << 20).iter().map(|f| (f.kind, f.stream)).collect::<Vec<_>>(), [(RESET, 1)]);
        }
    }

    #[test]
    fn a_host_that_ignores_the_window_is_reset() {
        let mut mux = Mux::new(5);
        mux.on_frame(host(OPEN, 1, 0, b""));
        let chunk = vec![0; 32_768];
        for i in 0..8 {
            assert_eq!(mux.on_frame(host(DATA, 1, i * 32_768, &chunk)), Event::Nothing);
        }
        assert_eq!(mux.on_frame(host(DATA, 1, 8 * 32_768, b"x")), Event::Closed(1));
    }

    #[test]
    fn taking_input_opens_the_hosts_window() {
        let mut mux = Mux::new(5);
        mux.on_frame(host(OPEN, 1, 0, b""));
        for i in 0..4 {
            mux.on_frame(host(DATA, 1, i * 32_768, &[0; 32_768]));
        }
        assert_eq!(sent(&mut mux, 1 << 20), []);
        mux.get(1).expect("open").rx().drain(..100_000);
        let frames = sent(&mut mux, 1 << 20);
        assert_eq!((frames[0].kind, frames[0].offset), (WINDOW, 100_000));
    }

    #[test]
    fn a_flood_on_one_stream_leaves_room_for_another() {
        let mut mux = Mux::new(5);
        mux.on_frame(host(OPEN, 1, 0, b""));
        mux.on_frame(host(OPEN, 2, 0, b""));
        mux.get(1).expect("open").send_file(&vec![1; 200_000]);
        mux.get(2).expect("open").send_json(&Value::Null);
        let order: Vec<u32> = sent(&mut mux, 40_000).iter().map(|f| f.stream).collect();
        assert!(order[..2].contains(&2), "{order:?}");
    }

    #[test]
    fn streams_are_bounded() {
        let mut mux = Mux::new(5);
        for id in 1..=MAX_STREAMS as u32 {
            assert_eq!(mux.on_frame(host(OPEN, id, 0, b"")), Event::Opened(id, vec![]));
        }
        assert_eq!(mux.on_frame(host(OPEN, 9999, 0, b"")), Event::Nothing);
        assert_eq!(sent(&mut mux, 1 << 20)[0].kind, RESET);
    }
}

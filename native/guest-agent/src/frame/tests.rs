use super::*;

fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, kind, 7, stream, 9, payload);
    out
}

fn drain(reader: &mut Reader) -> Vec<Frame> {
    core::iter::from_fn(|| reader.next_frame()).collect()
}

/// A small deterministic generator, so that a failure repeats.
struct Lcg(u64);
impl Lcg {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

#[test]
fn agrees_with_the_shared_fixtures() {
    let text = include_str!("../../../../packages/guest-channel/fixtures/frames.json");
    let crate::json::Value::List(cases) = crate::json::parse(text.as_bytes()).expect("fixtures are JSON") else { panic!("a list") };
    assert!(cases.len() >= 10);
    for case in &cases {
        let offset = case.u64("offset").expect("offset");
        let (kind, epoch, stream) = (case.u64("type").expect("type"), case.u64("epoch").expect("epoch"), case.u64("stream").expect("stream"));
        let payload = crate::hex::decode(case.text("payloadHex").expect("payload")).expect("hex");
        let wire = crate::hex::decode(case.text("wireHex").expect("wire")).expect("hex");
        let mut out = Vec::new();
        encode(&mut out, kind as u8, epoch as u32, stream as u32, offset, &payload);
        assert_eq!(out, wire, "{}", case.text("name").expect("name"));
        let mut reader = Reader::new(HELLO);
        reader.push(&wire);
        let expected = Frame { kind: kind as u8, epoch: epoch as u32, stream: stream as u32, offset, payload };
        assert_eq!(reader.next_frame(), Some(expected));
        assert_eq!((reader.held(), reader.skipped()), (0, 0));
    }
}

#[test]
fn reads_frames_in_any_slices() {
    let frames = [frame(DATA, 1, b"one"), frame(WINDOW, 2, b""), frame(DATA, 3, &[7; MAX_PAYLOAD_BYTES])];
    let wire = frames.concat();
    for slice in [1, 3, 27, 28, 29, 4096, wire.len()] {
        let mut reader = Reader::new(HELLO);
        let mut seen = Vec::new();
        for part in wire.chunks(slice) {
            reader.push(part);
            seen.extend(drain(&mut reader).iter().map(|f| (f.stream, f.payload.len())));
        }
        assert_eq!(seen, [(1, 3), (2, 0), (3, MAX_PAYLOAD_BYTES)]);
        assert_eq!(reader.skipped(), 0);
    }
}

#[test]
fn finds_the_next_frame_after_garbage() {
    let mut reader = Reader::new(HELLO);
    reader.push(b"garbage FXM FXM1 and a lonely F");
    reader.push(&frame(PING, 0, b"x"));
    // The false magic claims a payload of its own, which the real frame's bytes fill without fitting the CRC.
    reader.push(&frame(PING, 0, &[0; 20_000]));
    reader.push(&frame(PING, 0, &[0; 20_000]));
    assert!(drain(&mut reader).iter().any(|f| f.payload == b"x"));
    assert!(reader.skipped() >= 31);
}

#[test]
fn a_frame_without_its_tail_does_not_hide_a_hello() {
    let long = frame(DATA, 1, &[1; 30_000]);
    for cut in [1, 5, 27, 28, 29, 15_000, long.len() - 1] {
        let mut reader = Reader::new(HELLO);
        reader.push(&long[..cut]);
        assert_eq!(drain(&mut reader), []);
        for byte in frame(HELLO, 0, b"hi") {
            reader.push(&[byte]);
        }
        reader.push(&frame(PING, 5, b""));
        let seen: Vec<u8> = drain(&mut reader).iter().map(|f| f.kind).collect();
        // One byte at a time was pushed without reading in between, so all of it is found now.
        assert_eq!(seen, [HELLO, PING], "cut {cut}");
        assert_eq!(reader.skipped(), cut as u64);
    }
}

#[test]
fn other_types_inside_a_frame_are_data() {
    let inner = frame(DATA, 66, b"forged");
    let outer = frame(DATA, 1, &inner);
    let mut reader = Reader::new(HELLO);
    reader.push(&outer[..outer.len() - 1]);
    assert_eq!(drain(&mut reader), []);
    reader.push(&outer[outer.len() - 1..]);
    assert_eq!(drain(&mut reader).iter().map(|f| f.stream).collect::<Vec<_>>(), [1]);
}

#[test]
fn never_panics_never_grows_and_recovers_from_mutations() {
    let mut random = Lcg(42);
    for round in 0..4000 {
        let mut reader = Reader::new(HELLO);
        let mut wire = Vec::new();
        for i in 0..4u32 {
            let size = random.next(200);
            wire.extend(frame(DATA, i, &vec![random.next(256) as u8; size]));
        }
        for _ in 0..random.next(6) {
            let at = random.next(wire.len());
            match random.next(3) {
                0 => wire[at] = random.next(256) as u8,
                1 => drop(wire.drain(at..(at + random.next(30)).min(wire.len()))),
                _ => wire.insert(at, b"FXM1"[random.next(4)]),
            }
            if wire.is_empty() {
                wire.push(0);
            }
        }
        let mut at = 0;
        while at < wire.len() {
            let end = (at + 1 + random.next(90)).min(wire.len());
            reader.push(&wire[at..end]);
            drain(&mut reader);
            assert!(reader.held() < HEADER_BYTES + MAX_PAYLOAD_BYTES, "round {round}");
            at = end;
        }
        reader.push(&frame(HELLO, 0, b"again"));
        assert_eq!(drain(&mut reader).last().map(|f| f.kind), Some(HELLO), "round {round}");
    }
}

use super::failure::{Failure, Kind, Outcome};
use super::tar::{Entry, EntryKind, Segment, Source, TarReader};

struct Bytes<'a> {
    bytes: &'a [u8],
    /// Gives at most this many bytes a read, as a pipe may.
    step: usize,
}

impl Source for Bytes<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Outcome<usize> {
        let count = buffer.len().min(self.bytes.len()).min(self.step);
        buffer[..count].copy_from_slice(&self.bytes[..count]);
        self.bytes = &self.bytes[count..];
        Ok(count)
    }
}

fn header(name: &str, kind: u8, size: usize) -> Vec<u8> {
    let mut block = vec![0u8; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..107].copy_from_slice(b"0000644");
    block[108..115].copy_from_slice(b"0000012");
    block[116..123].copy_from_slice(b"0000034");
    block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    block[136..147].copy_from_slice(b"00000001750");
    block[156] = kind;
    block[257..263].copy_from_slice(b"ustar\0");
    seal(&mut block);
    block
}

fn seal(block: &mut [u8]) {
    block[148..156].fill(b' ');
    let sum: u32 = block[..512].iter().map(|&b| u32::from(b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn entry(name: &str, kind: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, kind, data.len());
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut data = String::new();
    for (key, value) in records {
        let rest = format!(" {key}={value}\n");
        let mut length = rest.len() + 1;
        while length.to_string().len() + rest.len() != length {
            length = length.to_string().len() + rest.len();
        }
        data.push_str(&format!("{length}{rest}"));
    }
    entry("pax", b'x', data.as_bytes())
}

fn read_with(bytes: &[u8], step: usize) -> Outcome<Vec<(Entry, Vec<u8>)>> {
    let mut reader = TarReader::new(Bytes { bytes, step });
    let mut all = Vec::new();
    while let Some(entry) = reader.next_entry()? {
        let mut data = Vec::new();
        let mut buffer = [0u8; 100];
        loop {
            let count = reader.read_data(&mut buffer)?;
            if count == 0 {
                break;
            }
            data.extend_from_slice(&buffer[..count]);
        }
        all.push((entry, data));
    }
    Ok(all)
}

fn read(bytes: &[u8]) -> Outcome<Vec<(Entry, Vec<u8>)>> {
    read_with(bytes, usize::MAX)
}

fn kind_of(bytes: &[u8]) -> Kind {
    read(bytes).expect_err("must be refused").kind
}

#[test]
fn plain_entries_and_their_data() {
    let bytes = [entry("a/b", b'0', b"hello"), entry("d/", b'5', b""), entry("old-dir/", 0, b""), vec![0; 1024]].concat();
    for step in [1, 7, 512, usize::MAX] {
        let all = read_with(&bytes, step).unwrap();
        assert_eq!(all.len(), 3);
        let (first, data) = &all[0];
        assert_eq!((first.path.as_slice(), data.as_slice()), (b"a/b".as_slice(), b"hello".as_slice()));
        assert_eq!((first.mode, first.uid, first.gid, first.mtime_seconds), (0o644, 0o12, 0o34, 1000));
        assert_eq!(all[1].0.kind, EntryKind::Directory);
        assert_eq!(all[2].0.kind, EntryKind::Directory);
    }
}

#[test]
fn pax_overrides_the_header() {
    let long = "x/".repeat(200) + "end";
    let records = [("path", long.as_str()), ("size", "3"), ("uid", "4000000"), ("mtime", "-1.5"), ("SCHILY.xattr.user.a", "v\nw")];
    let mut file = entry("short", b'0', b"abc");
    file[124..135].copy_from_slice(b"00000000000");
    seal(&mut file);
    let all = read(&[pax(&records), file].concat()).unwrap();
    let (entry, data) = &all[0];
    assert_eq!(entry.path, long.as_bytes());
    assert_eq!((entry.uid, entry.mtime_seconds, entry.mtime_nanos), (4_000_000, -2, 500_000_000));
    assert_eq!(entry.xattrs, vec![(b"user.a".to_vec(), b"v\nw".to_vec())]);
    assert_eq!(data, b"abc");
}

#[test]
fn gnu_long_names() {
    let long = "y".repeat(150);
    let bytes =
        [entry("././@LongLink", b'L', format!("{long}\0").as_bytes()), entry("././@LongLink", b'K', b"target\0"), header("y", b'2', 0)].concat();
    let all = read(&bytes).unwrap();
    assert_eq!(all[0].0.path, long.as_bytes());
    assert_eq!(all[0].0.link, b"target");
}

#[test]
fn numbers_in_base_256() {
    let mut block = header("big", b'1', 0);
    block[108..116].copy_from_slice(&[0x80, 0, 0, 0, 0, 1, 0, 0]);
    seal(&mut block);
    assert_eq!(read(&block).unwrap()[0].0.uid, 65536);
    block[108..116].copy_from_slice(&[0xff; 8]);
    seal(&mut block);
    assert_eq!(kind_of(&block), Kind::Malformed);
}

#[test]
fn sparse_files_of_pax_1_0() {
    let mut data = b"2\n0\n3\n1000\n2\n".to_vec();
    data.resize(512, 0);
    data.extend_from_slice(b"abcde");
    let bytes = [
        pax(&[("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.name", "real"), ("GNU.sparse.realsize", "2000")]),
        entry("x", b'0', &data),
    ]
    .concat();
    let all = read(&bytes).unwrap();
    let (entry, data) = &all[0];
    assert_eq!((entry.path.as_slice(), entry.size), (b"real".as_slice(), 2000));
    assert_eq!(entry.sparse, Some(vec![Segment { offset: 0, length: 3 }, Segment { offset: 1000, length: 2 }]));
    assert_eq!(data, b"abcde");
}

#[test]
fn sparse_files_of_old_gnu_and_pax_0_1() {
    let mut block = entry("s", b'S', b"abcde");
    block[386..397].copy_from_slice(b"00000000000");
    block[398..409].copy_from_slice(b"00000000003");
    block[410..421].copy_from_slice(b"00000001750");
    block[422..433].copy_from_slice(b"00000000002");
    block[483..494].copy_from_slice(b"00000003720");
    seal(&mut block);
    let all = read(&block).unwrap();
    assert_eq!(all[0].0.sparse, Some(vec![Segment { offset: 0, length: 3 }, Segment { offset: 1000, length: 2 }]));
    assert_eq!(all[0].1, b"abcde");

    let bytes = [pax(&[("GNU.sparse.size", "2000"), ("GNU.sparse.map", "0,3,1000,2")]), entry("s", b'0', b"abcde")].concat();
    assert_eq!(read(&bytes).unwrap()[0].0.sparse.as_ref().map(Vec::len), Some(2));
}

#[test]
fn sparse_maps_that_lie_are_refused() {
    for map in ["0,3,1,2", "0,9", "0,3,1999,2", "0,3,1000", "18446744073709551615,5", "0,1,10,1,20,1"] {
        let bytes = [pax(&[("GNU.sparse.size", "2000"), ("GNU.sparse.map", map)]), entry("s", b'0', b"abcde")].concat();
        assert_eq!(kind_of(&bytes), Kind::Malformed, "{map}");
    }
}

#[test]
fn an_archive_cut_anywhere_within_an_entry_is_truncated() {
    let bytes = [entry("a", b'0', &[7; 700]), entry("b", b'0', b"x")].concat();
    for cut in 1..bytes.len() {
        let result = read(&bytes[..cut]);
        // Between two entries, and in the padding of the last, an archive may end: many writers leave the end mark out.
        if cut == 1536 {
            assert!(result.is_ok(), "cut at {cut}");
        } else {
            assert!(matches!(result, Err(Failure { kind: Kind::Truncated, .. })), "cut at {cut}");
        }
    }
}

#[test]
fn headers_that_lie_are_refused() {
    let mut checksum = header("a", b'0', 0);
    checksum[0] = b'b';
    let mut kind = header("a", b'Z', 0);
    seal(&mut kind);
    let mut size = header("a", b'0', 0);
    size[124..136].copy_from_slice(b"9zz\0\0\0\0\0\0\0\0\0");
    seal(&mut size);
    let mut huge = header("a", b'x', 0);
    huge[124..136].copy_from_slice(b"77777777777\0");
    seal(&mut huge);
    for bytes in [&checksum, &kind, &size, &huge] {
        assert_eq!(kind_of(bytes), Kind::Malformed);
    }
    for data in ["5 a=b\n", "99 a=b\n", "6 a=b\nx", "x a=b\n", "6 aaab\n", "11 size=zz\n"] {
        assert_eq!(kind_of(&[entry("p", b'x', data.as_bytes()), entry("a", b'0', b"")].concat()), Kind::Malformed, "{data:?}");
    }
}

#[test]
fn no_bytes_make_the_reader_panic_or_hang() {
    let seed =
        [pax(&[("path", "a/b"), ("size", "5")]), entry("a", b'0', b"hello"), entry("s", b'S', b"abc"), entry("l", b'2', b""), vec![0; 1024]].concat();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..20_000 {
        let mut bytes = seed.clone();
        for _ in 0..1 + next() % 6 {
            let at = next() as usize % bytes.len();
            bytes[at] = next() as u8;
        }
        for block in bytes.chunks_exact_mut(512).step_by(1 + next() as usize % 3) {
            seal(block);
        }
        let _ = read(&bytes);
    }
}

//! Reads a tar archive entry by entry: ustar, GNU (long names, base-256 numbers, sparse files) and PAX (path, linkpath,
//! size, uid, gid, mtime, SCHILY.xattr.*, GNU.sparse.*). Sources: POSIX.1-2024 pax, the GNU tar manual ("Basic Tar
//! Format", "Sparse Formats"). No I/O but the reads it is given, every size bounded, nothing trusted.
use super::failure::{Failure, Kind, Outcome};

const BLOCK: usize = 512;
const MAX_PAX_BYTES: u64 = 4 << 20;
const MAX_LONG_NAME_BYTES: u64 = 64 << 10;
const MAX_SPARSE_SEGMENTS: usize = 1 << 20;
const MAX_XATTR_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    Symlink,
    HardLink,
    Fifo,
    CharDevice,
    BlockDevice,
}

/// Where a piece of data goes in a sparse file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub offset: u64,
    pub length: u64,
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub path: Vec<u8>,
    pub link: Vec<u8>,
    pub kind: EntryKind,
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    pub mtime_seconds: i64,
    pub mtime_nanos: u32,
    /// Size of the file; with `sparse`, its holes included.
    pub size: u64,
    /// For a sparse file: the pieces that the data consists of, in order.
    pub sparse: Option<Vec<Segment>>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Where the bytes come from. 0 means the end.
pub trait Source {
    fn read(&mut self, buffer: &mut [u8]) -> Outcome<usize>;
}

pub struct TarReader<S: Source> {
    source: S,
    /// Bytes of the current entry's data that were not read yet, and the padding after them.
    data_left: u64,
    padding: u64,
    ended: bool,
}

#[derive(Default)]
struct Extras {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<(i64, u32)>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    sparse_major: Option<u64>,
    sparse_minor: Option<u64>,
    sparse_size: Option<u64>,
    sparse_name: Option<Vec<u8>>,
    sparse_map: Vec<u64>,
    has_sparse: bool,
}

impl<S: Source> TarReader<S> {
    pub fn new(source: S) -> TarReader<S> {
        TarReader { source, data_left: 0, padding: 0, ended: false }
    }

    /// The next entry, whatever was left of the last one skipped. `None` at the end of the archive.
    pub fn next_entry(&mut self) -> Outcome<Option<Entry>> {
        let mut extras = Extras::default();
        loop {
            self.skip_rest()?;
            let Some(header) = self.read_header()? else { return Ok(None) };
            let size = number(&header[124..136]).ok_or_else(|| malformed("an entry's size is no number"))?;
            match header[156] {
                b'x' => {
                    let bytes = self.read_extra(size, MAX_PAX_BYTES)?;
                    parse_pax(&bytes, &mut extras)?;
                }
                b'g' => {
                    // Defaults for later entries; of those only comments are seen in practice, and they bind nobody.
                    self.read_extra(size, MAX_PAX_BYTES)?;
                }
                b'L' => extras.path = Some(until_nul(&self.read_extra(size, MAX_LONG_NAME_BYTES)?).to_vec()),
                b'K' => extras.link = Some(until_nul(&self.read_extra(size, MAX_LONG_NAME_BYTES)?).to_vec()),
                _ => return self.entry(&header, size, extras).map(Some),
            }
        }
    }

    /// Data of the current entry; 0 at its end.
    pub fn read_data(&mut self, buffer: &mut [u8]) -> Outcome<usize> {
        let want = (buffer.len() as u64).min(self.data_left) as usize;
        if want == 0 {
            return Ok(0);
        }
        let count = self.source.read(&mut buffer[..want])?;
        if count == 0 {
            return Err(truncated());
        }
        self.data_left -= count as u64;
        Ok(count)
    }

    /// How much data the current entry still has.
    pub fn data_left(&self) -> u64 {
        self.data_left
    }

    fn entry(&mut self, header: &[u8; BLOCK], size: u64, extras: Extras) -> Outcome<Entry> {
        let path = extras.sparse_name.clone().or_else(|| extras.path.clone()).unwrap_or_else(|| header_path(header));
        let fail = |failure: Failure| failure.at(&path);
        let flag = header[156];
        let kind = match flag {
            0 | b'0' if path.ends_with(b"/") => EntryKind::Directory,
            0 | b'0' | b'7' | b'S' => EntryKind::File,
            b'1' => EntryKind::HardLink,
            b'2' => EntryKind::Symlink,
            b'3' => EntryKind::CharDevice,
            b'4' => EntryKind::BlockDevice,
            b'5' => EntryKind::Directory,
            b'6' => EntryKind::Fifo,
            other => return Err(fail(malformed(format!("an entry has the unknown type {:?}", char::from(other))))),
        };
        let field = |range: std::ops::Range<usize>, what: &str| number(&header[range]).ok_or_else(|| malformed(format!("its {what} is no number")));
        // Only files carry data, whatever the size field of a link says.
        let data = if kind == EntryKind::File { extras.size.unwrap_or(size) } else { 0 };
        if data > i64::MAX as u64 {
            return Err(fail(malformed("its size is out of range")));
        }
        self.data_left = data;
        self.padding = data.next_multiple_of(BLOCK as u64) - data;
        let mut entry = Entry {
            link: extras.link.clone().unwrap_or_else(|| until_nul(&header[157..257]).to_vec()),
            kind,
            mode: (field(100..108, "mode").map_err(fail)? & 0o7777) as u32,
            uid: extras.uid.map_or_else(|| field(108..116, "uid"), Ok).map_err(fail)?,
            gid: extras.gid.map_or_else(|| field(116..124, "gid"), Ok).map_err(fail)?,
            mtime_seconds: extras
                .mtime
                .map_or_else(|| signed_number(&header[136..148]).ok_or_else(|| malformed("its mtime is no number")), |m| Ok(m.0))
                .map_err(fail)?,
            mtime_nanos: extras.mtime.map_or(0, |m| m.1),
            size: data,
            sparse: None,
            xattrs: Vec::new(),
            path: Vec::new(),
        };
        if kind == EntryKind::File {
            self.read_sparse(header, &extras, &mut entry).map_err(fail)?;
        }
        entry.xattrs = extras.xattrs;
        entry.path = path;
        Ok(entry)
    }

    /// Finds the map of a sparse file, in whichever of GNU tar's four formats.
    fn read_sparse(&mut self, header: &[u8; BLOCK], extras: &Extras, entry: &mut Entry) -> Outcome<()> {
        let numbers = if header[156] == b'S' {
            entry.size = number(&header[483..495]).ok_or_else(|| malformed("its real size is no number"))?;
            self.read_old_sparse_map(header)?
        } else if extras.sparse_major == Some(1) {
            entry.size = extras.sparse_size.ok_or_else(|| malformed("it is sparse without a real size"))?;
            self.read_sparse_map_1_0()?
        } else if extras.has_sparse {
            entry.size = extras.sparse_size.ok_or_else(|| malformed("it is sparse without a real size"))?;
            extras.sparse_map.clone()
        } else {
            return Ok(());
        };
        entry.sparse = Some(check_segments(&numbers, entry.size, self.data_left)?);
        Ok(())
    }

    fn read_old_sparse_map(&mut self, header: &[u8; BLOCK]) -> Outcome<Vec<u64>> {
        let mut numbers = Vec::new();
        let data = (self.data_left, self.padding);
        collect_sparse_pairs(&header[386..482], &mut numbers)?;
        let mut more = header[482] != 0;
        while more {
            let mut block = [0u8; BLOCK];
            self.fill(&mut block)?;
            collect_sparse_pairs(&block[..504], &mut numbers)?;
            more = block[504] != 0;
        }
        (self.data_left, self.padding) = data;
        Ok(numbers)
    }

    /// Decimal numbers, one a line, at the start of the data, padded to a block.
    fn read_sparse_map_1_0(&mut self) -> Outcome<Vec<u64>> {
        let mut numbers: Vec<u64> = Vec::new();
        let mut digits: Vec<u8> = Vec::new();
        let mut expected: Option<usize> = None;
        loop {
            if self.data_left < BLOCK as u64 {
                return Err(malformed("its sparse map is cut off"));
            }
            let mut block = [0u8; BLOCK];
            self.fill(&mut block)?;
            self.data_left -= BLOCK as u64;
            for &byte in &block {
                if expected == Some(numbers.len()) {
                    return Ok(numbers);
                }
                if byte != b'\n' {
                    digits.push(byte);
                    if digits.len() > 20 {
                        return Err(malformed("its sparse map is wrong"));
                    }
                    continue;
                }
                let value = decimal(&digits).ok_or_else(|| malformed("its sparse map is wrong"))?;
                digits.clear();
                match expected {
                    None if value > MAX_SPARSE_SEGMENTS as u64 => return Err(malformed("its sparse map is too long")),
                    None => expected = Some(value as usize * 2),
                    Some(_) => numbers.push(value),
                }
            }
            if expected == Some(numbers.len()) {
                return Ok(numbers);
            }
        }
    }

    fn read_extra(&mut self, size: u64, max: u64) -> Outcome<Vec<u8>> {
        if size > max {
            return Err(malformed("an extended header is too long"));
        }
        let mut bytes = vec![0u8; size as usize];
        self.fill(&mut bytes)?;
        self.padding = size.next_multiple_of(BLOCK as u64) - size;
        Ok(bytes)
    }

    fn skip_rest(&mut self) -> Outcome<()> {
        let mut left = self.data_left + self.padding;
        let mut buffer = [0u8; 16 << 10];
        while left > 0 {
            let want = left.min(buffer.len() as u64) as usize;
            let count = self.source.read(&mut buffer[..want])?;
            if count == 0 {
                return Err(truncated());
            }
            left -= count as u64;
        }
        self.data_left = 0;
        self.padding = 0;
        Ok(())
    }

    /// `None` at the end mark, or where the archive simply ends between entries.
    fn read_header(&mut self) -> Outcome<Option<[u8; BLOCK]>> {
        if self.ended {
            return Ok(None);
        }
        let mut header = [0u8; BLOCK];
        let mut done = 0;
        while done < BLOCK {
            let count = self.source.read(&mut header[done..])?;
            if count == 0 {
                self.ended = true;
                return if done == 0 { Ok(None) } else { Err(truncated()) };
            }
            done += count;
        }
        if header.iter().all(|&b| b == 0) {
            self.ended = true;
            return Ok(None);
        }
        let stored = number(&header[148..156]);
        let unsigned: u64 = header.iter().enumerate().map(|(i, &b)| if (148..156).contains(&i) { 32 } else { u64::from(b) }).sum();
        if stored != Some(unsigned) {
            return Err(malformed("a header's checksum is wrong"));
        }
        Ok(Some(header))
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Outcome<()> {
        let mut done = 0;
        while done < buffer.len() {
            let count = self.source.read(&mut buffer[done..])?;
            if count == 0 {
                return Err(truncated());
            }
            done += count;
        }
        Ok(())
    }
}

fn header_path(header: &[u8; BLOCK]) -> Vec<u8> {
    let name = until_nul(&header[..100]);
    let prefix = if &header[257..263] == b"ustar\0" { until_nul(&header[345..500]) } else { b"" };
    if prefix.is_empty() {
        return name.to_vec();
    }
    [prefix, b"/", name].concat()
}

fn collect_sparse_pairs(area: &[u8], numbers: &mut Vec<u64>) -> Outcome<()> {
    for pair in area.chunks_exact(24) {
        if pair[0] == 0 {
            break;
        }
        for half in [&pair[..12], &pair[12..]] {
            numbers.push(number(half).ok_or_else(|| malformed("its sparse map is wrong"))?);
        }
        if numbers.len() > 2 * MAX_SPARSE_SEGMENTS {
            return Err(malformed("its sparse map is too long"));
        }
    }
    Ok(())
}

/// Segments are in order, do not overlap, end within the file and add up to the data there is.
fn check_segments(numbers: &[u64], size: u64, data: u64) -> Outcome<Vec<Segment>> {
    let wrong = || malformed("its sparse map is wrong");
    if numbers.len() % 2 != 0 || size > i64::MAX as u64 {
        return Err(wrong());
    }
    let mut segments = Vec::with_capacity(numbers.len() / 2);
    let (mut end, mut total) = (0u64, 0u64);
    for pair in numbers.chunks_exact(2) {
        let (offset, length) = (pair[0], pair[1]);
        let next = offset.checked_add(length).ok_or_else(wrong)?;
        if offset < end || next > size {
            return Err(wrong());
        }
        end = next;
        total += length;
        segments.push(Segment { offset, length });
    }
    if total != data { Err(wrong()) } else { Ok(segments) }
}

/// Records of the form `LENGTH KEY=VALUE\n`, the length counting all of it.
fn parse_pax(mut bytes: &[u8], extras: &mut Extras) -> Outcome<()> {
    let wrong = || malformed("an extended header is wrong");
    while !bytes.is_empty() {
        let space = bytes.iter().take(20).position(|&b| b == b' ').ok_or_else(wrong)?;
        let length = decimal(&bytes[..space]).ok_or_else(wrong)? as usize;
        if length > bytes.len() || length < space + 3 || bytes[length - 1] != b'\n' {
            return Err(wrong());
        }
        let record = &bytes[space + 1..length - 1];
        let equals = record.iter().position(|&b| b == b'=').ok_or_else(wrong)?;
        apply_pax(&record[..equals], &record[equals + 1..], extras)?;
        bytes = &bytes[length..];
    }
    Ok(())
}

fn apply_pax(key: &[u8], value: &[u8], extras: &mut Extras) -> Outcome<()> {
    let wrong = || malformed(format!("the extended header {} is wrong", String::from_utf8_lossy(key)));
    let as_number = || decimal(value).ok_or_else(wrong);
    match key {
        b"path" => extras.path = Some(value.to_vec()),
        b"linkpath" => extras.link = Some(value.to_vec()),
        b"size" => extras.size = Some(as_number()?),
        b"uid" => extras.uid = Some(as_number()?),
        b"gid" => extras.gid = Some(as_number()?),
        b"mtime" => extras.mtime = Some(pax_time(value).ok_or_else(wrong)?),
        b"GNU.sparse.major" => extras.sparse_major = Some(as_number()?),
        b"GNU.sparse.minor" => extras.sparse_minor = Some(as_number()?),
        b"GNU.sparse.name" => extras.sparse_name = Some(value.to_vec()),
        b"GNU.sparse.size" | b"GNU.sparse.realsize" => extras.sparse_size = Some(as_number()?),
        b"GNU.sparse.numblocks" => extras.has_sparse = true,
        b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
            extras.has_sparse = true;
            extras.sparse_map.push(as_number()?);
        }
        b"GNU.sparse.map" => {
            extras.has_sparse = true;
            for part in value.split(|&b| b == b',').filter(|part| !part.is_empty()) {
                extras.sparse_map.push(decimal(part).ok_or_else(wrong)?);
            }
        }
        _ => {
            if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                if value.len() > MAX_XATTR_BYTES || name.is_empty() || name.len() > 255 || name.contains(&0) {
                    return Err(wrong());
                }
                extras.xattrs.push((name.to_vec(), value.to_vec()));
            }
        }
    }
    Ok(())
}

/// Seconds since the epoch, possibly negative, possibly with a fraction.
fn pax_time(value: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(value).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanos = format!("{:0<9.9}", fraction).parse::<u32>().ok()?;
    if whole.starts_with('-') && nanos > 0 {
        return Some((seconds.checked_sub(1)?, 1_000_000_000 - nanos));
    }
    Some((seconds, nanos))
}

fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// Octal text, or base 256 where the first bit is set. Negative numbers are none here.
fn number(field: &[u8]) -> Option<u64> {
    signed_number(field).and_then(|n| u64::try_from(n).ok())
}

fn signed_number(field: &[u8]) -> Option<i64> {
    if field[0] & 0x80 != 0 {
        let negative = field[0] & 0x40 != 0;
        let mut value: i128 = if negative { -1 } else { 0 };
        for (index, &byte) in field.iter().enumerate() {
            let bits = if index == 0 && !negative { byte & 0x7f } else { byte };
            value = (value << 8) | i128::from(bits);
            if i64::try_from(value).is_err() {
                return None;
            }
        }
        return i64::try_from(value).ok();
    }
    let text: Vec<u8> = field.iter().copied().skip_while(|&b| b == b' ').take_while(|&b| b != 0 && b != b' ').collect();
    let mut value: i64 = 0;
    for byte in text {
        if !(b'0'..=b'7').contains(&byte) {
            return None;
        }
        value = value.checked_mul(8)?.checked_add(i64::from(byte - b'0'))?;
    }
    Some(value)
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&b| b == 0).next().unwrap_or_default()
}

fn malformed(message: impl Into<String>) -> Failure {
    Failure::new(Kind::Malformed, message)
}

fn truncated() -> Failure {
    Failure::new(Kind::Truncated, "the layer ends within an entry")
}

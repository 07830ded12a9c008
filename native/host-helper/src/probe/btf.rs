//! The kernel's type information. Format: Documentation/bpf/btf.rst of the kernel.
use super::{Fault, Verdict, io_fault, works_with};
use serde_json::json;

const MAGIC: u16 = 0xEB9F;
const KIND_FUNC: u32 = 12;

pub struct Btf {
    bytes: Vec<u8>,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Bytes that follow a type's three words, by kind and number of members.
fn trailer_bytes(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        1 | 14 | 17 => 4,
        2 | 7..=12 | 16 | 18 => 0,
        3 => 12,
        4 | 5 | 15 | 19 => 12 * members,
        6 | 13 => 8 * members,
        _ => return None,
    })
}

impl Btf {
    pub fn read_kernel() -> Result<Btf, Fault> {
        let bytes = std::fs::read("/sys/kernel/btf/vmlinux").map_err(|e| io_fault("/sys/kernel/btf/vmlinux", &e))?;
        Ok(Btf { bytes })
    }

    fn parse(&self, name: &str) -> Option<(u32, Option<u32>)> {
        let bytes = &self.bytes;
        if u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?) != MAGIC {
            return None;
        }
        let header = u32_at(bytes, 4)? as usize;
        let types = header + u32_at(bytes, 8)? as usize;
        let end = types + u32_at(bytes, 12)? as usize;
        let strings = header + u32_at(bytes, 16)? as usize;
        let (mut at, mut id, mut found) = (types, 0u32, None);
        while at < end {
            id += 1;
            let (name_at, info) = (strings + u32_at(bytes, at)? as usize, u32_at(bytes, at + 4)?);
            let kind = info >> 24 & 0x1F;
            let text = bytes.get(name_at..).unwrap_or_default();
            if kind == KIND_FUNC && text.starts_with(name.as_bytes()) && text.get(name.len()) == Some(&0) {
                found = Some(id);
            }
            at += 12 + trailer_bytes(kind, (info & 0xFFFF) as usize)?;
        }
        Some((id, found))
    }

    /// The id of a kernel function's type.
    pub fn find_function(&self, name: &str) -> Result<Option<u32>, Fault> {
        self.parse(name).map(|(_, found)| found).ok_or_else(|| Fault::Broken("the type information cannot be read".into()))
    }
}

pub fn probe() -> Verdict {
    let btf = Btf::read_kernel()?;
    let (types, _) = btf.parse("bpf_lsm_file_open").ok_or_else(|| Fault::Broken("the type information cannot be read".into()))?;
    works_with(format!("{types} kernel types"), json!({ "types": types }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_past_other_kinds_and_garbage_is_refused() {
        let words = |w: &[u32]| w.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        // int (4 more bytes), struct of one member (12 more bytes), func "f".
        let types = words(&[1, 1 << 24, 4, 0, 1, 4 << 24 | 1, 8, 1, 1, 0, 3, 12 << 24, 1]);
        let strings = b"\0a\0f\0";
        let mut bytes = words(&[0x0001_EB9F, 24, 0, types.len() as u32, types.len() as u32, strings.len() as u32]);
        bytes.extend(types);
        bytes.extend(strings);
        let btf = Btf { bytes: bytes.clone() };
        assert_eq!(btf.parse("f"), Some((3, Some(3))));
        assert_eq!(btf.parse("much longer than the strings"), Some((3, None)));
        for cut in 0..bytes.len() {
            let _ = Btf { bytes: bytes[..cut].to_vec() }.parse("f");
        }
        assert_eq!(Btf { bytes: vec![0; 64] }.parse("f"), None);
    }
}

//! Names in a layer: what is accepted, and what they mean.
use super::failure::{Failure, Kind, Outcome};

/// Less than PATH_MAX, so that the tree can also be reached below the state directory.
pub const MAX_PATH_BYTES: usize = 3072;
const MAX_NAME_BYTES: usize = 255;

#[derive(Debug, PartialEq, Eq)]
pub enum Target {
    /// The root directory itself.
    Root,
    /// `parent` is relative to the root, without `.`, `..` or empty components; possibly empty.
    Inside { parent: Vec<u8>, name: Vec<u8> },
}

#[derive(Debug, PartialEq, Eq)]
pub enum Whiteout<'a> {
    None,
    /// Everything that lower layers have in the parent is hidden.
    Opaque,
    /// One name of the parent is hidden.
    Hide(&'a [u8]),
    /// Bookkeeping of AUFS, no part of the image.
    Ignored,
}

/// Takes `./a//b/` as `a/b`, and `/` as the root itself, as umoci names it. @throws unsafe for absolute names and `..`, malformed for what no file can be called.
pub fn clean(path: &[u8]) -> Outcome<Target> {
    if path == b"/" {
        return Ok(Target::Root);
    }
    if path.first() == Some(&b'/') {
        return Err(Failure::about(Kind::Unsafe, path, "its name is absolute"));
    }
    if path.contains(&0) || path.len() > MAX_PATH_BYTES {
        return Err(Failure::about(Kind::Malformed, path, "its name is too long or holds a zero byte"));
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => continue,
            b".." => return Err(Failure::about(Kind::Unsafe, path, "its name leads upwards")),
            _ if part.len() > MAX_NAME_BYTES => return Err(Failure::about(Kind::Malformed, path, "a part of its name is too long")),
            _ => parts.push(part),
        }
    }
    match parts.pop() {
        None if path.is_empty() => Err(Failure::about(Kind::Malformed, path, "an entry has no name")),
        None => Ok(Target::Root),
        Some(name) => Ok(Target::Inside { parent: parts.join(&b'/'), name: name.to_vec() }),
    }
}

pub fn whiteout(name: &[u8]) -> Outcome<Whiteout<'_>> {
    let Some(hidden) = name.strip_prefix(b".wh.") else { return Ok(Whiteout::None) };
    if hidden == b".wh..opq" {
        return Ok(Whiteout::Opaque);
    }
    if hidden.starts_with(b".wh.") {
        return Ok(Whiteout::Ignored);
    }
    match hidden {
        b"" | b"." | b".." => Err(Failure::about(Kind::Unsafe, name, "its whiteout names no entry of its directory")),
        _ => Ok(Whiteout::Hide(hidden)),
    }
}

pub fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    if parent.is_empty() { name.to_vec() } else { [parent, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(parent: &str, name: &str) -> Target {
        Target::Inside { parent: parent.into(), name: name.into() }
    }

    #[test]
    fn harmless_spellings_are_one_name() {
        for text in ["a/b", "./a/b", "a//b", "a/./b/", "././a/b//"] {
            assert_eq!(clean(text.as_bytes()).unwrap(), inside("a", "b"), "{text}");
        }
        assert_eq!(clean(b"...").unwrap(), inside("", "..."));
        assert_eq!(clean(b"./").unwrap(), Target::Root);
        assert_eq!(clean(b"/").unwrap(), Target::Root);
    }

    #[test]
    fn ways_out_are_refused() {
        for text in ["/etc/passwd", "../x", "a/../../x", "a/..", "..", "//x"] {
            assert_eq!(clean(text.as_bytes()).unwrap_err().kind, Kind::Unsafe, "{text}");
        }
        for bytes in [b"".as_slice(), b"a\0b", &[b'x'; 256], &b"a/".repeat(3000)] {
            assert_eq!(clean(bytes).unwrap_err().kind, Kind::Malformed);
        }
    }

    #[test]
    fn whiteouts() {
        assert_eq!(whiteout(b"a.wh.b").unwrap(), Whiteout::None);
        assert_eq!(whiteout(b".wh.a").unwrap(), Whiteout::Hide(b"a"));
        assert_eq!(whiteout(b".wh..wh..opq").unwrap(), Whiteout::Opaque);
        assert_eq!(whiteout(b".wh..wh.plnk").unwrap(), Whiteout::Ignored);
        for name in [b".wh.".as_slice(), b".wh..", b".wh..."] {
            assert_eq!(whiteout(name).unwrap_err().kind, Kind::Unsafe);
        }
    }
}

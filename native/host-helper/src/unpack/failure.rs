//! Why an unpacking failed, as the daemon is told.
use nix::errno::Errno;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The layer tries to leave its root or to make a device.
    Unsafe,
    /// The layer is no valid tar.
    Malformed,
    /// The layer ends too early.
    Truncated,
    TooLarge,
    OutOfSpace,
    /// The daemon went away.
    Cancelled,
    /// A system call failed.
    System,
    /// mke2fs failed.
    Tool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub kind: Kind,
    pub message: String,
    /// The entry it is about, bounded, or empty.
    pub entry: String,
}

pub type Outcome<T> = Result<T, Failure>;

const MAX_ENTRY_CHARS: usize = 200;

impl Failure {
    pub fn new(kind: Kind, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into(), entry: String::new() }
    }

    pub fn about(kind: Kind, entry: &[u8], message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into(), entry: printable(entry) }
    }

    /// A failed system call; a full disk and a file system out of inodes are told apart.
    pub fn errno(what: &str, errno: Errno) -> Failure {
        let kind = match errno {
            Errno::ENOSPC | Errno::EDQUOT => Kind::OutOfSpace,
            Errno::EFBIG => Kind::TooLarge,
            _ => Kind::System,
        };
        Failure::new(kind, format!("{what}: {}", errno.desc()))
    }

    pub fn io(what: &str, error: &std::io::Error) -> Failure {
        match error.raw_os_error() {
            Some(code) => Failure::errno(what, Errno::from_raw(code)),
            None => Failure::new(Kind::System, format!("{what}: {error}")),
        }
    }

    /// The same failure with its entry, if none is named yet.
    pub fn at(mut self, entry: &[u8]) -> Failure {
        if self.entry.is_empty() {
            self.entry = printable(entry);
        }
        self
    }
}

pub fn last_errno(what: &str) -> Failure {
    Failure::errno(what, Errno::last())
}

/// Bytes of a name as text: control characters and what is no UTF-8 are replaced, the length is bounded.
fn printable(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().count() <= MAX_ENTRY_CHARS {
        return text;
    }
    let mut short: String = text.chars().take(MAX_ENTRY_CHARS).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_printable() {
        assert_eq!(printable(b"a\x1b[31m\nb"), "a\u{fffd}[31m\u{fffd}b");
        assert_eq!(printable(&[b'x'; 5000]).chars().count(), MAX_ENTRY_CHARS + 1);
    }

    #[test]
    fn a_full_disk_is_told_apart() {
        assert_eq!(Failure::errno("write", Errno::ENOSPC).kind, Kind::OutOfSpace);
        assert_eq!(Failure::errno("write", Errno::EACCES).kind, Kind::System);
    }
}

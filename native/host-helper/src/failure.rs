//! How an operation failed: at which step, with which errno, and a sentence for the log.
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Failure {
    /// `invalid`, `system`, `stale`, `busy`, `deadline` or `unknown_op`.
    pub kind: String,
    pub step: String,
    pub errno: i32,
    /// The symbolic name, for example `ENOENT`, or empty.
    pub code: String,
    pub message: String,
}

pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub fn errno(step: &str, errno: i32, what: &str) -> Failure {
        let name = nix::errno::Errno::from_raw(errno);
        let code = if errno == 0 { String::new() } else { format!("{name:?}") };
        Failure { kind: "system".into(), step: step.into(), errno, code, message: format!("{what}: {}", name.desc()) }
    }

    /// The calling thread's last error.
    pub fn last(step: &str, what: &str) -> Failure {
        Failure::io(step, what, &std::io::Error::last_os_error())
    }

    pub fn io(step: &str, what: &str, error: &std::io::Error) -> Failure {
        match error.raw_os_error() {
            Some(errno) => Failure::errno(step, errno, what),
            None => Failure { kind: "system".into(), step: step.into(), errno: 0, code: String::new(), message: format!("{what}: {error}") },
        }
    }

    pub fn nix(step: &str, what: &str, error: nix::errno::Errno) -> Failure {
        Failure::errno(step, error as i32, what)
    }

    pub fn of(kind: &str, step: &str, message: impl Into<String>) -> Failure {
        Failure { kind: kind.into(), step: step.into(), errno: 0, code: String::new(), message: message.into() }
    }

    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::of("invalid", "request", message)
    }
}

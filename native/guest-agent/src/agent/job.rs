//! Work that may block for long (fsync, removing a tree, freezing a file system) done in a forked copy of the agent, so
//! that the one loop never waits. The copy writes one JSON value into a pipe and exits.

use alloc::vec::Vec;

use guest_agent::failure::{Failure, describe};
use guest_agent::json::Value;
use guest_agent::object;

use crate::sys::{self, Fork, OwnedFd};

const MAX_RESULT_BYTES: usize = 16 * 1024;

pub struct Job {
    pub pipe: OwnedFd,
    result: Vec<u8>,
}

/// In the copy, `work` gets `keep` (if given) as its only open descriptor besides the standard ones.
pub fn spawn(keep: Option<&OwnedFd>, work: impl FnOnce(Option<OwnedFd>) -> Result<Value, Failure>) -> Result<Job, Failure> {
    let failed = |e: sys::Errno| Failure::new("INTERNAL", alloc::format!("Cannot start work in the guest: {}", describe(e.0)));
    let (pipe, result) = sys::pipe(sys::raw::O_NONBLOCK).map_err(failed)?;
    match sys::fork().map_err(failed)? {
        Fork::Parent(_) => Ok(Job { pipe, result: Vec::new() }),
        Fork::Child => {
            let _ = sys::duplicate(result.raw(), 0);
            let kept = keep.filter(|fd| sys::duplicate(fd.raw(), 1).is_ok()).map(|_| OwnedFd::new(1));
            sys::close_from(3);
            let value = work(kept).unwrap_or_else(|failure| object! { "error": failure });
            let _ = sys::write_all(0, &value.to_bytes());
            sys::exit(0)
        }
    }
}

impl Job {
    /// The result's JSON once the copy has ended.
    pub fn poll(&mut self) -> Option<Result<Vec<u8>, Failure>> {
        let mut chunk = [0u8; 4096];
        loop {
            match sys::read(self.pipe.raw(), &mut chunk) {
                Ok(0) if self.result.is_empty() => return Some(Err(Failure::new("INTERNAL", "The work in the guest ended without a result"))),
                Ok(0) => return Some(Ok(core::mem::take(&mut self.result))),
                Ok(count) if self.result.len() + count <= MAX_RESULT_BYTES => self.result.extend_from_slice(&chunk[..count]),
                Ok(_) => return Some(Err(Failure::new("INTERNAL", "The work in the guest had too long a result"))),
                Err(error) if error.again() => return None,
                Err(error) => return Some(Err(Failure::new("INTERNAL", describe(error.0)))),
            }
        }
    }
}

//! The log writer of one process: reads pipes, appends to files, rotates `log` to `log.1`, `log.2`, … at a size.
//!
//! It runs forked beside the process, in its cgroup, without capabilities, and ends when the last writer is gone. The
//! disk used is at most `(keep + 1) × maxBytes` per log. It never stops reading: what cannot be written (a full disk)
//! is dropped, counted, and the count is written as one line when writing works again.
//! A file is made with its first byte, so a process that never started leaves none.
use super::{join_cgroups, privileges};
use crate::failure::{Failure, Outcome};
use nix::unistd::{ForkResult, fork, setsid};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

pub struct Log {
    pipe: File,
    dir: OwnedFd,
    name: String,
    max_bytes: u64,
    keep: u32,
    file: Option<File>,
    size: u64,
    dropped: u64,
}

impl Log {
    pub fn open(pipe: OwnedFd, path: &str, max_bytes: u64, keep: u32) -> Outcome<Log> {
        let path = Path::new(path);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
            return Err(Failure::of("invalid", "log", "a log needs a file name"));
        };
        let dir: OwnedFd = File::open(parent).map_err(|e| Failure::io("log", &parent.to_string_lossy(), &e))?.into();
        Ok(Log { pipe: pipe.into(), dir, name: name.into(), max_bytes, keep, file: None, size: 0, dropped: 0 })
    }

    fn c_name(&self, index: u32) -> CString {
        let name = if index == 0 { self.name.clone() } else { format!("{}.{index}", self.name) };
        CString::new(name).unwrap_or_default()
    }

    fn open_file(&mut self) -> std::io::Result<&mut File> {
        if self.file.is_none() {
            let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOFOLLOW;
            // SAFETY: the directory is open and the name ends with zero.
            let fd = unsafe { libc::openat(self.dir.as_raw_fd(), self.c_name(0).as_ptr(), flags, 0o600) };
            if fd < 0 {
                return Err(std::io::Error::last_os_error());
            }
            // SAFETY: the call made the descriptor.
            let file = unsafe { File::from_raw_fd(fd) };
            self.size = file.metadata()?.len();
            self.file = Some(file);
        }
        self.file.as_mut().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }

    fn rotate(&mut self) {
        self.file = None;
        let dir = self.dir.as_raw_fd();
        for index in (0..self.keep).rev() {
            let (from, to) = (self.c_name(index), self.c_name(index + 1));
            // SAFETY: the directory is open and the names end with zero.
            unsafe { libc::renameat(dir, from.as_ptr(), dir, to.as_ptr()) };
        }
        if self.keep == 0 {
            // SAFETY: as above.
            unsafe { libc::unlinkat(dir, self.c_name(0).as_ptr(), 0) };
        }
    }

    fn append(&mut self, mut bytes: &[u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            self.open_file()?;
            if self.size >= self.max_bytes {
                self.rotate();
                continue;
            }
            let room = (self.max_bytes - self.size).min(bytes.len() as u64) as usize;
            let written = self.open_file()?.write(&bytes[..room])?;
            self.size += written as u64;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.dropped > 0 {
            let note = format!("\n[{} bytes of log were lost]\n", self.dropped);
            if self.append(note.as_bytes()).is_ok() {
                self.dropped = 0;
            }
        }
        if self.append(bytes).is_err() {
            self.dropped += bytes.len() as u64;
            self.file = None;
        }
    }
}

/// Forks the log writer; its pid.
pub fn start(mut logs: Vec<Log>, cgroups: &[String], status: i32) -> Outcome<i32> {
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(|e| Failure::nix("log", "fork", e))? {
        ForkResult::Parent { child } => Ok(child.as_raw()),
        ForkResult::Child => {
            let keep: Vec<i32> = logs.iter().flat_map(|l| [l.pipe.as_raw_fd(), l.dir.as_raw_fd()]).collect();
            let _ = (setsid(), join_cgroups(cgroups), privileges::drop(None, &[]));
            // SAFETY: prctl with a string that ends with zero; then every descriptor not in use is closed.
            unsafe {
                libc::prctl(libc::PR_SET_NAME, c"fluxvm-log".as_ptr(), 0, 0, 0);
                libc::close(status);
                (0..1024).filter(|fd| !keep.contains(fd)).for_each(|fd| {
                    libc::close(fd);
                });
            }
            run(&mut logs);
            // SAFETY: ends without running the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
    }
}

fn run(logs: &mut Vec<Log>) {
    let mut buffer = vec![0u8; 64 << 10];
    while !logs.is_empty() {
        let mut polls: Vec<libc::pollfd> = logs.iter().map(|l| libc::pollfd { fd: l.pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
        // SAFETY: the array has the length passed.
        if unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as _, -1) } < 0 {
            continue;
        }
        let mut ready = polls.iter().map(|p| p.revents != 0);
        logs.retain_mut(|log| {
            if !ready.next().unwrap_or(false) {
                return true;
            }
            match log.pipe.read(&mut buffer) {
                Ok(0) => false,
                Ok(n) => {
                    log.take(&buffer[..n]);
                    true
                }
                Err(e) => e.kind() == std::io::ErrorKind::Interrupted,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_never_grows_past_its_bound_and_keeps_the_newest() {
        let dir = std::env::temp_dir().join(format!("fluxvm-log-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("x.log");
        let (read, _write) = nix::unistd::pipe().unwrap();
        let mut log = Log::open(read, path.to_str().unwrap(), 5000, 2).unwrap();
        for i in 0..2000 {
            log.take(format!("line {i:05}\n").as_bytes());
        }
        let sizes: Vec<u64> = ["x.log", "x.log.1", "x.log.2"].iter().map(|n| std::fs::metadata(dir.join(n)).unwrap().len()).collect();
        assert!(sizes.iter().all(|s| *s <= 5000), "{sizes:?}");
        assert!(!dir.join("x.log.3").exists());
        let newest = std::fs::read_to_string(&path).unwrap();
        assert!(newest.ends_with("line 01999\n"));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_told() {
        let dir = std::env::temp_dir().join(format!("fluxvm-lost-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("x.log")).unwrap();
        let (read, _write) = nix::unistd::pipe().unwrap();
        let mut log = Log::open(read, dir.join("x.log").to_str().unwrap(), 5000, 1).unwrap();
        log.take(b"12345");
        std::fs::remove_dir(dir.join("x.log")).unwrap();
        log.take(b"after");
        assert_eq!(std::fs::read_to_string(dir.join("x.log")).unwrap(), "\n[5 bytes of log were lost]\nafter");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

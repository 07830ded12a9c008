//! File work that the daemon's runtime lacks: copies that keep holes, reflinks, holes, extended attributes.
use crate::failure::{Failure, Outcome};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

fn c_string(text: &str) -> Outcome<CString> {
    CString::new(text).map_err(|_| Failure::invalid("zero byte in a path or name"))
}

fn open_source(path: &str) -> Outcome<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path).map_err(|e| Failure::io("open", "open source", &e))
}

/// Runs `work` on a file that has no name until the work is done: whatever happens, even to this process, the target is
/// whole or not there. Where the file system has no unnamed files, a named one is removed again on failure.
fn with_new_file<T>(path: &str, mode: u32, work: impl FnOnce(&File) -> Outcome<T>) -> Outcome<T> {
    if std::fs::symlink_metadata(path).is_ok() {
        return Err(Failure::errno("create", libc::EEXIST, "create target"));
    }
    let dir = Path::new(path).parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(mode).open(dir) {
        Ok(file) => {
            let result = work(&file)?;
            link(&file, path)?;
            Ok(result)
        }
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => with_named_file(path, mode, work),
        Err(e) => Err(Failure::io("create", "create target", &e)),
    }
}

fn link(file: &File, path: &str) -> Outcome<()> {
    let (from, to) = (c_string(&format!("/proc/self/fd/{}", file.as_raw_fd()))?, c_string(path)?);
    // SAFETY: both strings end with zero.
    match unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) } {
        0 => Ok(()),
        _ => Err(Failure::last("create", "name the target")),
    }
}

fn with_named_file<T>(path: &str, mode: u32, work: impl FnOnce(&File) -> Outcome<T>) -> Outcome<T> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(|e| Failure::io("create", "create target", &e))?;
    let result = work(&file);
    if result.is_err() {
        let _ = std::fs::remove_file(path);
    }
    result
}

/// Shares the source's blocks (FICLONE); the file system must be able to.
pub fn reflink(source: &str, target: &str, mode: u32) -> Outcome<()> {
    let from = open_source(source)?;
    with_new_file(target, mode, |to| {
        // SAFETY: both descriptors are open; FICLONE takes a descriptor, no memory.
        match unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE as _, from.as_raw_fd()) } {
            0 => Ok(()),
            _ => Err(Failure::last("reflink", "share blocks")),
        }
    })
}

fn seek(file: &File, offset: i64, whence: i32) -> Result<i64, i32> {
    // SAFETY: no memory is passed.
    let at = unsafe { libc::lseek(file.as_raw_fd(), offset, whence) };
    if at >= 0 { Ok(at) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
}

fn copy_range(from: &File, to: &File, start: i64, end: i64) -> Outcome<()> {
    let (mut read_at, mut write_at) = (start, start);
    while read_at < end {
        let want = (end - read_at).min(64 << 20) as usize;
        // SAFETY: both offsets are valid for writes during the call.
        let n = unsafe { libc::copy_file_range(from.as_raw_fd(), &mut read_at, to.as_raw_fd(), &mut write_at, want, 0) };
        match n {
            0 => return Err(Failure::of("system", "copy", "the source became shorter")),
            n if n > 0 => {}
            _ => return Err(Failure::last("copy", "copy data")),
        }
    }
    Ok(())
}

/// Copies data and keeps holes; the number of data bytes copied.
pub fn sparse_copy(source: &str, target: &str, mode: u32) -> Outcome<i64> {
    let from = open_source(source)?;
    let size = from.metadata().map_err(|e| Failure::io("open", "stat source", &e))?.len() as i64;
    with_new_file(target, mode, |to| {
        to.set_len(size as u64).map_err(|e| Failure::io("copy", "set size", &e))?;
        let (mut at, mut copied) = (0i64, 0i64);
        while at < size {
            let data = match seek(&from, at, libc::SEEK_DATA) {
                Ok(data) => data,
                Err(libc::ENXIO) => break,
                Err(errno) => return Err(Failure::errno("copy", errno, "find data")),
            };
            let hole = seek(&from, data, libc::SEEK_HOLE).map_err(|errno| Failure::errno("copy", errno, "find hole"))?;
            copy_range(&from, to, data, hole)?;
            copied += hole - data;
            at = hole;
        }
        to.sync_all().map_err(|e| Failure::io("copy", "sync", &e))?;
        Ok(copied)
    })
}

pub fn punch(path: &str, offset: i64, length: i64) -> Outcome<()> {
    let file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(path).map_err(|e| Failure::io("open", "open file", &e))?;
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: no memory is passed.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) } {
        0 => Ok(()),
        _ => Err(Failure::last("punch", "punch hole")),
    }
}

/// The value of an extended attribute, `None` when there is none of that name.
pub fn get_xattr(path: &str, name: &str) -> Outcome<Option<Vec<u8>>> {
    let (path, name) = (c_string(path)?, c_string(name)?);
    let mut value = vec![0u8; 64 << 10];
    // SAFETY: the strings end with zero and the buffer has the length passed.
    let n = unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    if n < 0 {
        let error = Failure::last("xattr", "get attribute");
        return if error.errno == libc::ENODATA { Ok(None) } else { Err(error) };
    }
    value.truncate(n as usize);
    Ok(Some(value))
}

pub fn set_xattr(path: &str, name: &str, value: &[u8]) -> Outcome<()> {
    let (path, name) = (c_string(path)?, c_string(name)?);
    // SAFETY: the strings end with zero and the buffer has the length passed.
    match unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) } {
        0 => Ok(()),
        _ => Err(Failure::last("xattr", "set attribute")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    fn scratch(name: &str) -> String {
        let dir = std::env::temp_dir().join(format!("fluxvm-files-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir.to_str().unwrap().to_string()
    }

    #[test]
    fn a_sparse_copy_is_equal_and_stays_sparse() {
        let dir = scratch("sparse");
        let (a, b) = (format!("{dir}/a"), format!("{dir}/b"));
        let file = File::create(&a).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(b"head", 0).unwrap();
        file.write_all_at(b"tail", (40 << 20) + 3).unwrap();
        file.sync_all().unwrap();
        sparse_copy(&a, &b, 0o600).unwrap();
        assert_eq!(std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap());
        assert!(std::fs::metadata(&b).unwrap().blocks() * 512 < 1 << 20);
        punch(&b, 0, 4096).unwrap();
        assert_eq!(&std::fs::read(&b).unwrap()[..4], &[0; 4]);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_target_that_exists_is_refused_and_kept() {
        let dir = scratch("exists");
        let (a, b) = (format!("{dir}/a"), format!("{dir}/b"));
        std::fs::write(&a, "new").unwrap();
        std::fs::write(&b, "old").unwrap();
        assert_eq!(sparse_copy(&a, &b, 0o600).unwrap_err().code, "EEXIST");
        assert_eq!(std::fs::read_to_string(&b).unwrap(), "old");
        assert_eq!(sparse_copy(&format!("{dir}/none"), &b, 0o600).unwrap_err().code, "ENOENT");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

//! Files, directories, mounts and terminals.

use alloc::vec::Vec;

use super::{CPath, Errno, Fd, OwnedFd, Result, errno, raw};
use crate::sys::call;

const AT_FDCWD: i32 = -100;

pub fn close(fd: Fd) {
    let _ = call!(raw::__NR_close, fd);
}

pub fn open(path: &[u8], flags: u32) -> Result<OwnedFd> {
    open_mode(path, flags, 0)
}

pub fn open_mode(path: &[u8], flags: u32, mode: u32) -> Result<OwnedFd> {
    let path = CPath::new(path)?;
    call!(raw::__NR_openat, AT_FDCWD, path.ptr(), flags | raw::O_CLOEXEC, mode).map(|fd| OwnedFd::new(fd as Fd))
}

pub fn read(fd: Fd, into: &mut [u8]) -> Result<usize> {
    call!(raw::__NR_read, fd, into.as_mut_ptr(), into.len())
}

pub fn pread(fd: Fd, into: &mut [u8], offset: u64) -> Result<usize> {
    call!(raw::__NR_pread64, fd, into.as_mut_ptr(), into.len(), offset)
}

pub fn write(fd: Fd, bytes: &[u8]) -> Result<usize> {
    call!(raw::__NR_write, fd, bytes.as_ptr(), bytes.len())
}

pub fn write_all(fd: Fd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match write(fd, bytes) {
            Ok(0) => return Err(Errno(errno::EIO as i32)),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.is(errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The whole of a small file. `EFBIG` above `bound` bytes.
pub fn read_file(path: &[u8], bound: usize) -> Result<Vec<u8>> {
    let fd = open(path, raw::O_RDONLY | raw::O_NONBLOCK)?;
    let mut bytes = Vec::new();
    let mut chunk = [0u8; 4096];
    loop {
        match read(fd.raw(), &mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(count) if bytes.len() + count > bound => return Err(Errno(errno::EFBIG as i32)),
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if error.is(errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

pub fn write_file(path: &[u8], bytes: &[u8], mode: u32) -> Result<()> {
    let fd = open_mode(path, raw::O_WRONLY | raw::O_CREAT | raw::O_TRUNC, mode)?;
    write_all(fd.raw(), bytes)
}

pub fn fsync(fd: Fd) -> Result<()> {
    call!(raw::__NR_fsync, fd).map(|_| ())
}

pub fn mkdir(path: &[u8], mode: u32) -> Result<()> {
    let path = CPath::new(path)?;
    call!(raw::__NR_mkdirat, AT_FDCWD, path.ptr(), mode).map(|_| ())
}

/// `mkdir -p`: a parent that exists is fine.
pub fn mkdir_parents(path: &[u8], mode: u32) -> Result<()> {
    for end in 1..=path.len() {
        if end == path.len() || path[end] == b'/' {
            match mkdir(&path[..end], mode) {
                Err(error) if !error.is(errno::EEXIST) => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

pub fn unlink(path: &[u8], directory: bool) -> Result<()> {
    let path = CPath::new(path)?;
    call!(raw::__NR_unlinkat, AT_FDCWD, path.ptr(), if directory { raw::AT_REMOVEDIR } else { 0 }).map(|_| ())
}

pub fn unlink_at(directory: Fd, name: &[u8], is_directory: bool) -> Result<()> {
    let name = CPath::new(name)?;
    call!(raw::__NR_unlinkat, directory, name.ptr(), if is_directory { raw::AT_REMOVEDIR } else { 0 }).map(|_| ())
}

pub fn open_at(directory: Fd, name: &[u8], flags: u32) -> Result<OwnedFd> {
    let name = CPath::new(name)?;
    call!(raw::__NR_openat, directory, name.ptr(), flags | raw::O_CLOEXEC, 0).map(|fd| OwnedFd::new(fd as Fd))
}

pub fn rename(from: &[u8], to: &[u8], replace: bool) -> Result<()> {
    let (from, to) = (CPath::new(from)?, CPath::new(to)?);
    let flags = if replace { 0 } else { raw::RENAME_NOREPLACE };
    call!(raw::__NR_renameat2, AT_FDCWD, from.ptr(), AT_FDCWD, to.ptr(), flags).map(|_| ())
}

pub fn symlink(target: &[u8], path: &[u8]) -> Result<()> {
    let (target, path) = (CPath::new(target)?, CPath::new(path)?);
    call!(raw::__NR_symlinkat, target.ptr(), AT_FDCWD, path.ptr()).map(|_| ())
}

pub fn read_link(path: &[u8]) -> Result<Vec<u8>> {
    let path = CPath::new(path)?;
    let mut target = [0u8; 4096];
    let count = call!(raw::__NR_readlinkat, AT_FDCWD, path.ptr(), target.as_mut_ptr(), target.len())?;
    Ok(target[..count].to_vec())
}

pub fn fchmod(fd: Fd, mode: u32) -> Result<()> {
    call!(raw::__NR_fchmod, fd, mode).map(|_| ())
}

pub fn chmod(path: &[u8], mode: u32) -> Result<()> {
    let path = CPath::new(path)?;
    call!(raw::__NR_fchmodat, AT_FDCWD, path.ptr(), mode).map(|_| ())
}

pub fn fchown(fd: Fd, uid: u32, gid: u32) -> Result<()> {
    call!(raw::__NR_fchown, fd, uid, gid).map(|_| ())
}

/// What `stat` tells, of the kernel's `statx`.
#[derive(Clone, Copy)]
pub struct Stat {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub mtime_ms: i64,
    pub device: (u32, u32),
}

impl Stat {
    pub fn kind(&self) -> u32 {
        self.mode & raw::S_IFMT
    }
    pub fn is_directory(&self) -> bool {
        self.kind() == raw::S_IFDIR
    }
    pub fn is_regular(&self) -> bool {
        self.kind() == raw::S_IFREG
    }
}

fn statx(directory: Fd, path: *const u8, flags: u32) -> Result<Stat> {
    // SAFETY: all zero is a valid statx.
    let mut x: raw::statx = unsafe { core::mem::zeroed() };
    call!(raw::__NR_statx, directory, path, flags, raw::STATX_BASIC_STATS, &raw mut x)?;
    Ok(Stat {
        mode: u32::from(x.stx_mode),
        uid: x.stx_uid,
        gid: x.stx_gid,
        size: x.stx_size,
        mtime_ms: x.stx_mtime.tv_sec * 1000 + i64::from(x.stx_mtime.tv_nsec) / 1_000_000,
        device: (x.stx_dev_major, x.stx_dev_minor),
    })
}

pub fn stat(path: &[u8], follow: bool) -> Result<Stat> {
    let path = CPath::new(path)?;
    statx(AT_FDCWD, path.ptr(), if follow { 0 } else { raw::AT_SYMLINK_NOFOLLOW })
}

pub fn stat_at(directory: Fd, name: &[u8]) -> Result<Stat> {
    let name = CPath::new(name)?;
    statx(directory, name.ptr(), raw::AT_SYMLINK_NOFOLLOW)
}

pub fn fstat(fd: Fd) -> Result<Stat> {
    statx(fd, c"".as_ptr().cast(), raw::AT_EMPTY_PATH)
}

pub fn exists(path: &[u8]) -> bool {
    stat(path, true).is_ok()
}

/// Fills `buffer` with directory records; see `next_entry`.
pub fn read_directory(fd: Fd, buffer: &mut [u8]) -> Result<usize> {
    call!(raw::__NR_getdents64, fd, buffer.as_mut_ptr(), buffer.len())
}

/// Takes one record off what `read_directory` gave: its name and the rest. `.` and `..` are included.
pub fn next_entry(records: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::from(u16::from_ne_bytes([*records.get(16)?, *records.get(17)?]));
    let record = records.get(..length)?;
    let name = record.get(19..)?;
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    Some((&name[..end], &records[length..]))
}

/// Names in a directory, without `.` and `..`, at most `bound`.
pub fn list_directory(path: &[u8], bound: usize) -> Result<Vec<Vec<u8>>> {
    let fd = open(path, raw::O_RDONLY | raw::O_DIRECTORY)?;
    let mut names = Vec::new();
    let mut buffer = [0u8; 8192];
    loop {
        let count = read_directory(fd.raw(), &mut buffer)?;
        if count == 0 {
            return Ok(names);
        }
        let mut rest = &buffer[..count];
        while let Some((name, next)) = next_entry(rest) {
            if name != b"." && name != b".." && names.len() < bound {
                names.push(name.to_vec());
            }
            rest = next;
        }
    }
}

pub struct Usage {
    pub total: u64,
    pub free: u64,
    pub available: u64,
    pub inodes: u64,
    pub inodes_free: u64,
}

pub fn file_system_usage(path: &[u8]) -> Result<Usage> {
    let path = CPath::new(path)?;
    // SAFETY: all zero is a valid statfs.
    let mut s: raw::statfs = unsafe { core::mem::zeroed() };
    call!(raw::__NR_statfs, path.ptr(), &raw mut s)?;
    let block = s.f_frsize as u64;
    Ok(Usage {
        total: s.f_blocks as u64 * block,
        free: s.f_bfree as u64 * block,
        available: s.f_bavail as u64 * block,
        inodes: s.f_files as u64,
        inodes_free: s.f_ffree as u64,
    })
}

pub fn mount(source: &[u8], target: &[u8], kind: &[u8], flags: u32, data: &[u8]) -> Result<()> {
    let (source, target, kind, data) = (CPath::new(source)?, CPath::new(target)?, CPath::new(kind)?, CPath::new(data)?);
    call!(raw::__NR_mount, source.ptr(), target.ptr(), kind.ptr(), flags, data.ptr()).map(|_| ())
}

pub fn unmount(target: &[u8], flags: u32) -> Result<()> {
    let target = CPath::new(target)?;
    call!(raw::__NR_umount2, target.ptr(), flags).map(|_| ())
}

pub fn chroot(path: &[u8]) -> Result<()> {
    let path = CPath::new(path)?;
    call!(raw::__NR_chroot, path.ptr()).map(|_| ())
}

pub fn chdir(path: &[u8]) -> Result<()> {
    let path = CPath::new(path)?;
    call!(raw::__NR_chdir, path.ptr()).map(|_| ())
}

/// Grows an ext4 that is mounted at `path` to `blocks` of its block size.
pub fn ext4_resize(path: &[u8], blocks: u64) -> Result<()> {
    const EXT4_IOC_RESIZE_FS: u32 = 0x4008_6610;
    let fd = open(path, raw::O_RDONLY | raw::O_DIRECTORY)?;
    call!(raw::__NR_ioctl, fd.raw(), EXT4_IOC_RESIZE_FS, &raw const blocks).map(|_| ())
}

/// Stops (or lets go on) writes to the file system that holds `path`.
pub fn freeze(path: &[u8], frozen: bool) -> Result<()> {
    const FIFREEZE: u32 = 0xc004_5877;
    const FITHAW: u32 = 0xc004_5878;
    let fd = open(path, raw::O_RDONLY)?;
    call!(raw::__NR_ioctl, fd.raw(), if frozen { FIFREEZE } else { FITHAW }, 0).map(|_| ())
}

pub fn pipe(flags: u32) -> Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0 as Fd; 2];
    call!(raw::__NR_pipe2, fds.as_mut_ptr(), flags | raw::O_CLOEXEC)?;
    Ok((OwnedFd::new(fds[0]), OwnedFd::new(fds[1])))
}

pub fn set_nonblocking(fd: Fd) -> Result<()> {
    let flags = call!(raw::__NR_fcntl, fd, raw::F_GETFL, 0)?;
    call!(raw::__NR_fcntl, fd, raw::F_SETFL, flags | raw::O_NONBLOCK as usize).map(|_| ())
}

pub fn duplicate(from: Fd, to: Fd) -> Result<()> {
    if from == to {
        return call!(raw::__NR_fcntl, from, raw::F_SETFD, 0).map(|_| ());
    }
    call!(raw::__NR_dup3, from, to, 0).map(|_| ())
}

/// A new pseudo-terminal: our end (non-blocking) and the process's.
pub fn open_pty(rows: u16, columns: u16) -> Result<(OwnedFd, OwnedFd)> {
    const TIOCSPTLCK: u32 = 0x4004_5431;
    const TIOCGPTPEER: u32 = 0x5441;
    let ours = open(b"/dev/ptmx", raw::O_RDWR | raw::O_NOCTTY | raw::O_NONBLOCK)
        .or_else(|_| open(b"/dev/pts/ptmx", raw::O_RDWR | raw::O_NOCTTY | raw::O_NONBLOCK))?;
    let unlocked = 0i32;
    call!(raw::__NR_ioctl, ours.raw(), TIOCSPTLCK, &raw const unlocked)?;
    let theirs = call!(raw::__NR_ioctl, ours.raw(), TIOCGPTPEER, raw::O_RDWR | raw::O_NOCTTY | raw::O_CLOEXEC)?;
    let theirs = OwnedFd::new(theirs as Fd);
    set_window_size(ours.raw(), rows, columns)?;
    Ok((ours, theirs))
}

pub fn set_window_size(terminal: Fd, rows: u16, columns: u16) -> Result<()> {
    const TIOCSWINSZ: u32 = 0x5414;
    let size = [rows, columns, 0, 0];
    call!(raw::__NR_ioctl, terminal, TIOCSWINSZ, size.as_ptr()).map(|_| ())
}

pub fn set_controlling_terminal(terminal: Fd) -> Result<()> {
    const TIOCSCTTY: u32 = 0x540e;
    call!(raw::__NR_ioctl, terminal, TIOCSCTTY, 0).map(|_| ())
}

pub const IN_MASK: u32 = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800;

pub fn inotify(path: &[u8]) -> Result<OwnedFd> {
    let fd = OwnedFd::new(call!(raw::__NR_inotify_init1, raw::O_NONBLOCK | raw::O_CLOEXEC)? as Fd);
    let path = CPath::new(path)?;
    call!(raw::__NR_inotify_add_watch, fd.raw(), path.ptr(), IN_MASK)?;
    Ok(fd)
}

/// A copy of the descriptor, closed on exec, with a number above the standard three.
pub fn duplicate_above(fd: Fd) -> Result<OwnedFd> {
    call!(raw::__NR_fcntl, fd, raw::F_DUPFD_CLOEXEC, 3).map(|fd| OwnedFd::new(fd as Fd))
}

pub fn seek_to(fd: Fd, offset: u64) -> Result<()> {
    call!(raw::__NR_lseek, fd, offset, 0).map(|_| ())
}

/// Makes sure that a standard descriptor is taken, so that none of ours gets its number.
pub fn ensure_open(fd: Fd) {
    if call!(raw::__NR_fcntl, fd, raw::F_GETFD, 0).is_err() {
        if let Ok(null) = open(b"/dev/null", raw::O_RDWR) {
            let _ = duplicate(null.raw(), fd);
            if null.raw() == fd {
                null.into_raw();
            }
        }
    }
}

/// Reads and forgets what a non-blocking descriptor has.
pub fn drain(fd: Fd) {
    let mut chunk = [0u8; 4096];
    while read(fd, &mut chunk).is_ok_and(|count| count > 0) {}
}

//! The tree under construction, reached only through its root's descriptor.
//!
//! Every open goes through `openat2` with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS. A symbolic link on the way to an
//! entry's directory is followed by hand, as a container's runtime would follow it inside the root (`lib -> usr/lib`
//! is ordinary); one that climbs above the root is refused. Nobody else writes to the tree meanwhile.
use super::failure::{Failure, Kind, Outcome};
use super::name::{MAX_PATH_BYTES, join};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

const MAX_LINKS: usize = 40;

pub struct Tree {
    root: OwnedFd,
}

/// A directory and the names that lead to it without any link.
pub struct Place {
    pub directory: OwnedFd,
    pub path: Vec<u8>,
}

impl Tree {
    pub fn new(root: OwnedFd) -> Tree {
        Tree { root }
    }

    /// Opens `path`, which contains no link, relative to the root.
    pub fn open(&self, path: &[u8], flags: OFlag) -> nix::Result<OwnedFd> {
        open_beneath(&self.root, if path.is_empty() { b"." } else { path }, flags, Mode::empty())
    }

    /// The directory `path` after following links inside the root. With `make`, missing parts become directories, and
    /// `made` is called with the path of each. `None` when a part is missing.
    pub fn walk(&self, path: &[u8], make: bool, made: &mut dyn FnMut(&[u8])) -> Outcome<Option<Place>> {
        match self.open(path, OFlag::O_PATH | OFlag::O_DIRECTORY) {
            Ok(directory) => return Ok(Some(Place { directory, path: path.to_vec() })),
            Err(Errno::ELOOP | Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(errno) => return Err(Failure::errno("open a directory", errno)),
        }
        self.walk_slowly(path, make, made)
    }

    fn walk_slowly(&self, path: &[u8], make: bool, made: &mut dyn FnMut(&[u8])) -> Outcome<Option<Place>> {
        let mut pending: VecDeque<Vec<u8>> = split(path);
        let mut here: Vec<Vec<u8>> = Vec::new();
        let mut directory = self.open(b"", OFlag::O_PATH | OFlag::O_DIRECTORY).map_err(|e| Failure::errno("open the root", e))?;
        let mut links = 0;
        while let Some(part) = pending.pop_front() {
            if part == b".." {
                if here.pop().is_none() {
                    return Err(Failure::new(Kind::Unsafe, "a symbolic link on its way leads out of the root"));
                }
                directory = self.reopen(&here)?;
                continue;
            }
            match status(&directory, &part)? {
                None if !make => return Ok(None),
                None => {
                    mkdirat(&directory, part.as_slice(), Mode::from_bits_truncate(0o755)).map_err(|e| Failure::errno("make a directory", e))?;
                    here.push(part);
                    made(&here.join(&b'/'));
                }
                Some(stat) if is(&stat, SFlag::S_IFDIR) => here.push(part),
                Some(stat) if is(&stat, SFlag::S_IFLNK) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Failure::new(Kind::Unsafe, "the symbolic links on its way go in circles"));
                    }
                    let target = readlinkat(&directory, part.as_slice()).map_err(|e| Failure::errno("read a link", e))?;
                    let target = std::os::unix::ffi::OsStrExt::as_bytes(target.as_os_str());
                    if target.first() == Some(&b'/') {
                        here.clear();
                    }
                    for part in split(target).into_iter().rev() {
                        pending.push_front(part);
                    }
                }
                Some(_) if !make => return Ok(None),
                Some(_) => return Err(Failure::new(Kind::Malformed, "its parent is no directory")),
            }
            directory = self.reopen(&here)?;
        }
        Ok(Some(Place { directory, path: here.join(&b'/') }))
    }

    fn reopen(&self, here: &[Vec<u8>]) -> Outcome<OwnedFd> {
        let path = here.join(&b'/');
        if path.len() > MAX_PATH_BYTES {
            return Err(Failure::new(Kind::Malformed, "its path is too long"));
        }
        self.open(&path, OFlag::O_PATH | OFlag::O_DIRECTORY).map_err(|e| Failure::errno("open a directory", e))
    }

    /// Removes `name` and all below it, but for the paths that `keep` names; a directory on the way to such a path
    /// stays.
    pub fn remove(&self, place: &Place, name: &[u8], keep: &dyn Fn(&[u8]) -> bool) -> Outcome<()> {
        let path = join(&place.path, name);
        let Some(stat) = status(&place.directory, name)? else { return Ok(()) };
        let is_directory = is(&stat, SFlag::S_IFDIR);
        let kept = keep(&path);
        if is_directory {
            let directory = open_beneath(&place.directory, name, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())
                .map_err(|e| Failure::errno("open a directory", e))?;
            self.remove_children(&Place { directory, path }, keep)?;
        }
        if kept {
            return Ok(());
        }
        let flags = if is_directory { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
        unlinkat(&place.directory, name, flags).map_err(|e| Failure::errno("remove an entry", e))
    }

    pub fn remove_children(&self, place: &Place, keep: &dyn Fn(&[u8]) -> bool) -> Outcome<()> {
        for name in list(&place.directory)? {
            self.remove(place, &name, keep)?;
        }
        Ok(())
    }
}

pub fn open_beneath(directory: &impl AsFd, path: &[u8], flags: OFlag, mode: Mode) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .mode(mode)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV);
    loop {
        // EAGAIN: a rename elsewhere on the host made the walk uncertain.
        match openat2(directory, path, how) {
            Err(Errno::EAGAIN | Errno::EINTR) => continue,
            result => return result,
        }
    }
}

/// `None` when there is no such name.
pub fn status(directory: &impl AsFd, name: &[u8]) -> Outcome<Option<FileStat>> {
    match fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(Failure::errno("look at an entry", errno)),
    }
}

pub fn is(stat: &FileStat, kind: SFlag) -> bool {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == kind
}

/// Names in a directory, without `.` and `..`.
pub fn list(directory: &impl AsFd) -> Outcome<Vec<Vec<u8>>> {
    let fail = |e| Failure::errno("list a directory", e);
    let handle = open_beneath(directory, b".", OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty()).map_err(fail)?;
    let mut names = Vec::new();
    for entry in Dir::from_fd(handle).map_err(fail)?.iter() {
        let name = entry.map_err(fail)?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

fn split(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|&b| b == b'/').filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec).collect()
}

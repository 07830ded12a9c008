//! Applies layers to the tree with the semantics of the OCI image specification ("Image Layer Filesystem Changeset").
//!
//! Whiteouts hide what lower layers have and never what their own layer brings, wherever in the layer they stand, so
//! the paths a layer touched are remembered until its end. Directories' times are set last, since every change inside
//! moves them.
use super::failure::{Failure, Kind, Outcome, last_errno};
use super::name::{self, Target, Whiteout, join};
use super::tar::{Entry, EntryKind, Source, TarReader};
use super::tree::{Place, Tree, is, open_beneath, status};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, UtimensatFlags, fchmod, fchmodat, futimens, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchown, fchownat, linkat, mkfifoat, symlinkat};
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub max_bytes: u64,
    pub max_files: u64,
    /// False when only one id is mapped: everything then belongs to it.
    pub keep_owner: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Entries and bytes written, later layers' replacements included.
    pub files: u64,
    pub bytes: u64,
}

pub struct Applier {
    tree: Tree,
    limits: Limits,
    totals: Totals,
    /// Paths of the layer under way, with all directories on the way to them.
    touched: HashSet<Vec<u8>>,
    /// Times of every directory, by its path without links.
    directory_times: HashMap<Vec<u8>, TimeSpec>,
    /// Names the last entry's directory was reached by, and what they meant. Dropped whenever something is removed.
    last_parent: Option<(Vec<u8>, Place)>,
    buffer: Vec<u8>,
}

const COPY_BYTES: usize = 256 << 10;
/// What is kept of extended attributes; the rest belongs to the machine that made the image.
const KEPT_XATTRS: [&[u8]; 4] = [b"user.", b"security.capability", b"system.posix_acl_access", b"system.posix_acl_default"];

impl Applier {
    pub fn new(root: OwnedFd, limits: Limits) -> Applier {
        let directory_times = HashMap::from([(Vec::new(), TimeSpec::new(0, 0))]);
        Applier {
            tree: Tree::new(root),
            limits,
            totals: Totals::default(),
            touched: HashSet::new(),
            directory_times,
            last_parent: None,
            buffer: vec![0; COPY_BYTES],
        }
    }

    pub fn apply_layer<S: Source>(&mut self, source: S) -> Outcome<()> {
        self.touched.clear();
        self.last_parent = None;
        let mut reader = TarReader::new(source);
        while let Some(entry) = reader.next_entry()? {
            self.totals.files += 1;
            if self.totals.files > self.limits.max_files {
                return Err(Failure::about(Kind::TooLarge, &entry.path, format!("more than {} entries", self.limits.max_files)));
            }
            self.apply(&entry, &mut reader).map_err(|failure| failure.at(&entry.path))?;
        }
        Ok(())
    }

    /// Sets the times that were put off. The tree must not change afterwards.
    pub fn finish(self) -> Outcome<Totals> {
        for (path, time) in &self.directory_times {
            match self.tree.open(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY) {
                Ok(directory) => futimens(&directory, time, time).map_err(|e| Failure::errno("set times", e).at(path))?,
                // Removed or replaced by a later layer.
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => continue,
                Err(errno) => return Err(Failure::errno("open a directory", errno).at(path)),
            }
        }
        Ok(self.totals)
    }

    fn apply<S: Source>(&mut self, entry: &Entry, reader: &mut TarReader<S>) -> Outcome<()> {
        let (parent, name) = match name::clean(&entry.path)? {
            Target::Root if entry.kind == EntryKind::Directory => return self.apply_root(entry),
            Target::Root => return Err(Failure::new(Kind::Malformed, "the root must be a directory")),
            Target::Inside { parent, name } => (parent, name),
        };
        match name::whiteout(&name)? {
            Whiteout::Ignored => return Ok(()),
            Whiteout::Opaque => return self.hide(&parent, None),
            Whiteout::Hide(hidden) => return self.hide(&parent, Some(hidden)),
            Whiteout::None => {}
        }
        if matches!(entry.kind, EntryKind::CharDevice | EntryKind::BlockDevice) {
            return Err(Failure::new(Kind::Unsafe, "it is a device"));
        }
        let place = self.parent(&parent)?;
        let path = join(&place.path, &name);
        let result = self.create(entry, &place, &name, &path, reader);
        self.touch(&path);
        self.last_parent = Some((parent, place));
        if entry.kind == EntryKind::Symlink {
            self.last_parent = None;
        }
        result
    }

    fn apply_root(&mut self, entry: &Entry) -> Outcome<()> {
        let root = self.tree.open(b"", OFlag::O_RDONLY | OFlag::O_DIRECTORY).map_err(|e| Failure::errno("open the root", e))?;
        self.directory_times.insert(Vec::new(), time_of(entry));
        self.set_attributes(&root, entry)
    }

    /// The directory an entry goes to, made where it is missing.
    fn parent(&mut self, parent: &[u8]) -> Outcome<Place> {
        if let Some((names, place)) = self.last_parent.take()
            && names == parent
        {
            return Ok(place);
        }
        let Applier { tree, directory_times, .. } = self;
        let mut made = |path: &[u8]| {
            directory_times.insert(path.to_vec(), TimeSpec::new(0, 0));
        };
        match tree.walk(parent, true, &mut made)? {
            Some(place) => Ok(place),
            None => Err(Failure::new(Kind::System, "its directory was not made")),
        }
    }

    fn touch(&mut self, path: &[u8]) {
        let mut end = path.len();
        while !self.touched.contains(&path[..end]) {
            self.touched.insert(path[..end].to_vec());
            match path[..end].iter().rposition(|&b| b == b'/') {
                Some(slash) => end = slash,
                None => return,
            }
        }
    }

    /// Removes what lower layers have at `name`, or everything in `parent`.
    fn hide(&mut self, parent: &[u8], name: Option<&[u8]>) -> Outcome<()> {
        self.last_parent = None;
        let Some(place) = self.tree.walk(parent, false, &mut |_| ())? else { return Ok(()) };
        let keep = |path: &[u8]| self.touched.contains(path);
        match name {
            Some(name) => self.tree.remove(&place, name, &keep),
            None => self.tree.remove_children(&place, &keep),
        }
    }

    fn create<S: Source>(&mut self, entry: &Entry, place: &Place, name: &[u8], path: &[u8], reader: &mut TarReader<S>) -> Outcome<()> {
        let link = if entry.kind == EntryKind::HardLink { Some(self.find_link_target(entry)?) } else { None };
        if let Some(existing) = status(&place.directory, name)? {
            let both_directories = is(&existing, SFlag::S_IFDIR) && entry.kind == EntryKind::Directory;
            let same = link.as_ref().is_some_and(|(_, _, target)| target.st_ino == existing.st_ino && target.st_dev == existing.st_dev);
            if same {
                return Ok(());
            }
            if !both_directories {
                self.tree.remove(place, name, &|_| false)?;
            }
        }
        match entry.kind {
            EntryKind::File => self.create_file(entry, place, name, reader),
            EntryKind::Directory => self.create_directory(entry, place, name, path),
            EntryKind::Symlink => self.create_symlink(entry, place, name),
            EntryKind::Fifo => self.create_fifo(entry, place, name),
            EntryKind::HardLink => match link {
                Some((from, target, _)) => linkat(&from.directory, target.as_slice(), &place.directory, name, AtFlags::empty())
                    .map_err(|e| Failure::errno("make a hard link", e)),
                None => Ok(()),
            },
            EntryKind::CharDevice | EntryKind::BlockDevice => Err(Failure::new(Kind::Unsafe, "it is a device")),
        }
    }

    fn create_file<S: Source>(&mut self, entry: &Entry, place: &Place, name: &[u8], reader: &mut TarReader<S>) -> Outcome<()> {
        let size = entry.size.max(reader.data_left());
        if size > self.limits.max_bytes - self.totals.bytes.min(self.limits.max_bytes) {
            return Err(Failure::new(Kind::TooLarge, format!("the image unpacks to more than {} bytes", self.limits.max_bytes)));
        }
        self.totals.bytes += size;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        let fd = open_beneath(&place.directory, name, flags, Mode::from_bits_truncate(0o600)).map_err(|e| Failure::errno("make a file", e))?;
        let mut file = File::from(fd);
        match &entry.sparse {
            None => self.copy(reader, &mut file, reader.data_left())?,
            Some(segments) => {
                for segment in segments {
                    file.seek(SeekFrom::Start(segment.offset)).map_err(|e| Failure::io("write a file", &e))?;
                    self.copy(reader, &mut file, segment.length)?;
                }
                file.set_len(entry.size).map_err(|e| Failure::io("write a file", &e))?;
            }
        }
        self.set_attributes(&file, entry)?;
        futimens(&file, &time_of(entry), &time_of(entry)).map_err(|e| Failure::errno("set times", e))
    }

    fn copy<S: Source>(&mut self, reader: &mut TarReader<S>, file: &mut File, length: u64) -> Outcome<()> {
        let mut left = length;
        while left > 0 {
            let want = left.min(self.buffer.len() as u64) as usize;
            let count = reader.read_data(&mut self.buffer[..want])?;
            if count == 0 {
                return Err(Failure::new(Kind::Truncated, "its data ends too early"));
            }
            file.write_all(&self.buffer[..count]).map_err(|e| Failure::io("write a file", &e))?;
            left -= count as u64;
        }
        Ok(())
    }

    fn create_directory(&mut self, entry: &Entry, place: &Place, name: &[u8], path: &[u8]) -> Outcome<()> {
        match mkdirat(&place.directory, name, Mode::from_bits_truncate(0o700)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(Failure::errno("make a directory", errno)),
        }
        let directory = open_beneath(&place.directory, name, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())
            .map_err(|e| Failure::errno("open a directory", e))?;
        self.directory_times.insert(path.to_vec(), time_of(entry));
        self.set_attributes(&directory, entry)
    }

    fn create_symlink(&mut self, entry: &Entry, place: &Place, name: &[u8]) -> Outcome<()> {
        if entry.link.is_empty() || entry.link.contains(&0) || entry.link.len() > name::MAX_PATH_BYTES {
            return Err(Failure::new(Kind::Malformed, "its target is empty or too long"));
        }
        symlinkat(entry.link.as_slice(), &place.directory, name).map_err(|e| Failure::errno("make a link", e))?;
        self.set_owner_at(entry, place, name)?;
        set_times_at(entry, place, name)
    }

    fn create_fifo(&mut self, entry: &Entry, place: &Place, name: &[u8]) -> Outcome<()> {
        mkfifoat(&place.directory, name, Mode::from_bits_truncate(0o600)).map_err(|e| Failure::errno("make a fifo", e))?;
        self.set_owner_at(entry, place, name)?;
        fchmodat(&place.directory, name, Mode::from_bits_truncate(entry.mode), FchmodatFlags::FollowSymlink)
            .map_err(|e| Failure::errno("set its mode", e))?;
        set_times_at(entry, place, name)
    }

    /// A hard link's target is named like an entry. What it names must be there and be no directory.
    fn find_link_target(&mut self, entry: &Entry) -> Outcome<(Place, Vec<u8>, nix::sys::stat::FileStat)> {
        let missing = || Failure::new(Kind::Malformed, "it is a hard link to something that is not there");
        let (parent, name) =
            match name::clean(&entry.link).map_err(|failure| Failure::new(failure.kind, format!("its link target: {}", failure.message)))? {
                Target::Root => return Err(Failure::new(Kind::Malformed, "it is a hard link to a directory")),
                Target::Inside { parent, name } => (parent, name),
            };
        let place = self.tree.walk(&parent, false, &mut |_| ())?.ok_or_else(missing)?;
        let stat = status(&place.directory, &name)?.ok_or_else(missing)?;
        if is(&stat, SFlag::S_IFDIR) {
            return Err(Failure::new(Kind::Malformed, "it is a hard link to a directory"));
        }
        Ok((place, name, stat))
    }

    /// Owner before mode and capability: changing the owner clears both.
    fn set_attributes(&self, fd: &(impl AsFd + AsRawFd), entry: &Entry) -> Outcome<()> {
        if self.limits.keep_owner {
            let (uid, gid) = owner(entry)?;
            fchown(fd, Some(uid), Some(gid)).map_err(owner_failure)?;
        }
        fchmod(fd, Mode::from_bits_truncate(entry.mode)).map_err(|e| Failure::errno("set its mode", e))?;
        for (name, value) in &entry.xattrs {
            set_xattr(fd, name, value)?;
        }
        Ok(())
    }

    fn set_owner_at(&self, entry: &Entry, place: &Place, name: &[u8]) -> Outcome<()> {
        if !self.limits.keep_owner {
            return Ok(());
        }
        let (uid, gid) = owner(entry)?;
        fchownat(&place.directory, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW).map_err(owner_failure)
    }
}

fn owner(entry: &Entry) -> Outcome<(Uid, Gid)> {
    let id = |value: u64| u32::try_from(value).ok().filter(|&v| v != u32::MAX);
    match (id(entry.uid), id(entry.gid)) {
        (Some(uid), Some(gid)) => Ok((Uid::from_raw(uid), Gid::from_raw(gid))),
        _ => Err(Failure::new(Kind::Malformed, "its owner is out of range")),
    }
}

fn owner_failure(errno: Errno) -> Failure {
    match errno {
        Errno::EINVAL => Failure::new(Kind::Malformed, "its owner is out of the range that can be mapped"),
        _ => Failure::errno("set its owner", errno),
    }
}

fn set_times_at(entry: &Entry, place: &Place, name: &[u8]) -> Outcome<()> {
    utimensat(&place.directory, name, &time_of(entry), &time_of(entry), UtimensatFlags::NoFollowSymlink).map_err(|e| Failure::errno("set times", e))
}

fn time_of(entry: &Entry) -> TimeSpec {
    // ext4 with 256-byte inodes ends in 2446; what is outside is clamped rather than wrapped.
    TimeSpec::new(entry.mtime_seconds.clamp(-(1 << 31), (1 << 34) - (1 << 31) - 1), i64::from(entry.mtime_nanos))
}

fn set_xattr(fd: &impl AsRawFd, name: &[u8], value: &[u8]) -> Outcome<()> {
    let kept = KEPT_XATTRS.iter().any(|&known| if known.ends_with(b".") { name.starts_with(known) } else { name == known });
    if !kept {
        return Ok(());
    }
    let Ok(c_name) = CString::new(name) else { return Err(Failure::new(Kind::Malformed, "an attribute's name holds a zero byte")) };
    // SAFETY: both pointers are valid for the call, the length is the value's.
    let result = unsafe { libc::fsetxattr(fd.as_raw_fd(), c_name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    if result == 0 { Ok(()) } else { Err(last_errno(&format!("set attribute {}", String::from_utf8_lossy(name)))) }
}

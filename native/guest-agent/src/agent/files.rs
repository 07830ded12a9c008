//! File operations. What reads or writes content goes in pieces, driven by its stream's window, and holds no more than
//! one piece. A written file appears whole or not at all: the bytes go to a file beside it, which is flushed and renamed.

use alloc::string::String;
use alloc::vec::Vec;

use guest_agent::failure::{Failure, file_failure};
use guest_agent::json::Value;
use guest_agent::mux::Stream;
use guest_agent::{hex, message, object};

use crate::agent::handler::Outcome;
use crate::agent::job::{self, Job};
use crate::sys::{self, OwnedFd, Stat, raw};

const PIECE_BYTES: usize = 32 * 1024;
const BATCH_ENTRIES: usize = 64;
/// Of paths in a batch: escaped, they grow up to six times and must fit into a message.
const BATCH_PATH_BYTES: usize = 8 * 1024;
const MAX_REMOVE_DEPTH: usize = 256;

fn fail<'a>(what: &'a str, path: &'a str) -> impl Fn(sys::Errno) -> Failure + 'a {
    move |error| file_failure(error.0, what, path.as_bytes())
}

/// The absolute path of the request.
pub fn path_of<'a>(request: &'a Value, name: &str) -> Result<&'a str, Failure> {
    let path = request.text(name)?;
    if !path.starts_with('/') || path.contains('\0') || path.len() > 4000 {
        return Err(Failure::invalid(alloc::format!("Invalid {name}: must be an absolute path of at most 4000 bytes")));
    }
    Ok(path)
}

fn kind_name(stat: &Stat) -> &'static str {
    match stat.kind() {
        raw::S_IFREG => "file",
        raw::S_IFDIR => "directory",
        raw::S_IFLNK => "symlink",
        raw::S_IFIFO => "fifo",
        raw::S_IFSOCK => "socket",
        raw::S_IFBLK => "block",
        _ => "char",
    }
}

pub fn stat_value(path: &str, stat: &Stat) -> Value {
    let target = if kind_name(stat) == "symlink" { sys::read_link(path.as_bytes()).ok() } else { None };
    object! {
        "path": path,
        "type": kind_name(stat),
        "size": stat.size,
        "mode": stat.mode & 0o7777,
        "uid": stat.uid,
        "gid": stat.gid,
        "mtimeMs": stat.mtime_ms,
        "target": target.map_or(Value::Null, |t| Value::Text(String::from_utf8_lossy(&t).into_owned())),
    }
}

pub fn stat(request: &Value) -> Result<Value, Failure> {
    request.only(&["op", "path", "follow"])?;
    let path = path_of(request, "path")?;
    let stat = sys::stat(path.as_bytes(), request.flag("follow")?).map_err(fail("stat", path))?;
    Ok(object! { "stat": stat_value(path, &stat) })
}

pub fn make_directory(request: &Value) -> Result<Value, Failure> {
    request.only(&["op", "path", "parents", "mode"])?;
    let path = path_of(request, "path")?;
    let mode = request.opt_u64("mode")?.unwrap_or(0o755) as u32;
    if request.flag("parents")? {
        sys::mkdir_parents(path.trim_end_matches('/').as_bytes(), mode).map_err(fail("make", path))?;
        let made = sys::stat(path.as_bytes(), true).map_err(fail("make", path))?;
        if !made.is_directory() {
            return Err(file_failure(sys::errno::ENOTDIR as i32, "make", path.as_bytes()));
        }
    } else {
        sys::mkdir(path.as_bytes(), mode).map_err(fail("make", path))?;
        let _ = sys::chmod(path.as_bytes(), mode);
    }
    Ok(object! {})
}

pub fn rename(request: &Value) -> Result<Value, Failure> {
    request.only(&["op", "from", "to", "noReplace"])?;
    let (from, to) = (path_of(request, "from")?, path_of(request, "to")?);
    sys::rename(from.as_bytes(), to.as_bytes(), !request.flag("noReplace")?).map_err(fail("rename", from))?;
    Ok(object! {})
}

/// One file or empty directory at once; a tree in a job.
pub fn remove(request: &Value) -> Result<Option<Job>, Failure> {
    request.only(&["op", "path", "recursive"])?;
    let path = path_of(request, "path")?.trim_end_matches('/');
    if path.is_empty() {
        return Err(Failure::invalid("Invalid path: the root directory cannot be removed"));
    }
    let stat = sys::stat(path.as_bytes(), false).map_err(fail("remove", path))?;
    if !stat.is_directory() || !request.flag("recursive")? {
        sys::unlink(path.as_bytes(), stat.is_directory()).map_err(fail("remove", path))?;
        return Ok(None);
    }
    let path = String::from(path);
    job::spawn(None, move |_| {
        let parent = sys::open(b"/", raw::O_RDONLY | raw::O_DIRECTORY).map_err(fail("remove", &path))?;
        remove_tree(parent.raw(), path.as_bytes(), 0).map_err(fail("remove", &path))?;
        Ok(object! {})
    })
    .map(Some)
}

/// Never follows a link: each level is opened from the one above, without following.
fn remove_tree(parent: sys::Fd, name: &[u8], depth: usize) -> sys::Result<()> {
    if depth > MAX_REMOVE_DEPTH {
        return Err(sys::Errno(sys::errno::ELOOP as i32));
    }
    let directory = sys::open_at(parent, name, raw::O_RDONLY | raw::O_DIRECTORY | raw::O_NOFOLLOW)?;
    let mut buffer = alloc::vec![0u8; 8192];
    loop {
        let count = sys::read_directory(directory.raw(), &mut buffer)?;
        if count == 0 {
            return sys::unlink_at(parent, name, true);
        }
        let records = buffer[..count].to_vec();
        let mut rest = &records[..];
        while let Some((entry, next)) = sys::next_entry(rest) {
            rest = next;
            if entry == b"." || entry == b".." {
                continue;
            }
            if sys::stat_at(directory.raw(), entry)?.is_directory() {
                remove_tree(directory.raw(), entry, depth + 1)?;
            } else {
                sys::unlink_at(directory.raw(), entry, false)?;
            }
        }
    }
}

pub fn usage(request: &Value) -> Result<Value, Failure> {
    request.only(&["op", "path"])?;
    let path = path_of(request, "path")?;
    let usage = sys::file_system_usage(path.as_bytes()).map_err(fail("measure", path))?;
    Ok(object! {
        "totalBytes": usage.total, "freeBytes": usage.free, "availableBytes": usage.available,
        "inodes": usage.inodes, "inodesFree": usage.inodes_free,
    })
}

// --- reading ---

pub struct Reading {
    fd: OwnedFd,
    path: String,
    left: u64,
    sent: u64,
}

pub fn read(request: &Value, stream: &mut Stream) -> Result<Reading, Failure> {
    request.only(&["op", "path", "offset", "length"])?;
    let path = path_of(request, "path")?;
    let fd = sys::open(path.as_bytes(), raw::O_RDONLY | raw::O_NONBLOCK | raw::O_NOCTTY).map_err(fail("read", path))?;
    let stat = sys::fstat(fd.raw()).map_err(fail("read", path))?;
    if !stat.is_regular() {
        let number = if stat.is_directory() { sys::errno::EISDIR } else { sys::errno::EINVAL };
        return Err(file_failure(number as i32, "read", path.as_bytes()));
    }
    let offset = request.opt_u64("offset")?.unwrap_or(0);
    if offset > 0 {
        sys::seek_to(fd.raw(), offset).map_err(fail("read", path))?;
    }
    let left = request.opt_u64("length")?.unwrap_or(u64::MAX);
    stream.send_json(&object! { "stat": stat_value(path, &stat) });
    Ok(Reading { fd, path: path.into(), left, sent: 0 })
}

impl Reading {
    pub fn pump(&mut self, stream: &mut Stream, scratch: &mut [u8]) -> Outcome {
        if !stream.wants_output() {
            return Outcome::Idle;
        }
        let count = self.left.min(PIECE_BYTES as u64) as usize;
        match sys::read(self.fd.raw(), &mut scratch[..count]) {
            Ok(0) => {
                stream.send_json(&object! { "end": self.sent });
                Outcome::Finish
            }
            Ok(count) => {
                stream.send_file(&scratch[..count]);
                self.sent += count as u64;
                self.left -= count as u64;
                Outcome::Progress
            }
            Err(error) => Outcome::Fail(file_failure(error.0, "read", self.path.as_bytes())),
        }
    }
}

// --- writing ---

/// The file that the bytes go to first. Dropped without `keep`, it is removed.
struct Draft {
    path: Option<Vec<u8>>,
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = sys::unlink(path, false);
        }
    }
}

pub struct Writing {
    fd: OwnedFd,
    draft: Draft,
    path: String,
    received: u64,
    job: Option<Job>,
}

struct Attributes {
    mode: u32,
    owner: Option<(u32, u32)>,
}

/// Where the bytes belong: a link is followed, so that the link itself stays.
fn resolve_target(path: &str) -> Result<String, Failure> {
    match sys::stat(path.as_bytes(), false) {
        Ok(stat) if stat.kind() == raw::S_IFLNK => {
            let fd = sys::open(path.as_bytes(), raw::O_PATH).map_err(fail("write", path))?;
            let link = alloc::format!("/proc/self/fd/{}", fd.raw());
            let target = sys::read_link(link.as_bytes()).map_err(fail("write", path))?;
            String::from_utf8(target).map_err(|_| file_failure(sys::errno::EINVAL as i32, "write", path.as_bytes()))
        }
        _ => Ok(path.into()),
    }
}

fn attributes(request: &Value, target: &str) -> Result<Attributes, Failure> {
    let existing = sys::stat(target.as_bytes(), true).ok();
    if let Some(stat) = &existing {
        if !stat.is_regular() {
            let number = if stat.is_directory() { sys::errno::EISDIR } else { sys::errno::EINVAL };
            return Err(file_failure(number as i32, "write", target.as_bytes()));
        }
    }
    let known = |s: &Stat| (s.uid, s.gid);
    let (uid, gid) = (request.opt_u64("uid")?, request.opt_u64("gid")?);
    let owner = match (uid, gid, existing.as_ref().map(known)) {
        (None, None, None) => None,
        (None, None, Some(owner)) => Some(owner),
        (uid, gid, owner) => {
            let (old_uid, old_gid) = owner.unwrap_or((0, 0));
            Some((uid.map_or(old_uid, |u| u as u32), gid.map_or(old_gid, |g| g as u32)))
        }
    };
    let mode = request.opt_u64("mode")?.map_or_else(|| existing.map_or(0o644, |s| s.mode & 0o7777), |m| m as u32 & 0o7777);
    Ok(Attributes { mode, owner })
}

pub fn write(request: &Value, stream: &mut Stream) -> Result<Writing, Failure> {
    request.only(&["op", "path", "mode", "uid", "gid", "createParents", "append"])?;
    let path = path_of(request, "path")?;
    if path.ends_with('/') {
        return Err(file_failure(sys::errno::EISDIR as i32, "write", path.as_bytes()));
    }
    let target = resolve_target(path)?;
    let parent = target.rfind('/').map_or("/", |at| &target[..at]);
    if request.flag("createParents")? && !parent.is_empty() {
        sys::mkdir_parents(parent.as_bytes(), 0o755).map_err(fail("make", parent))?;
    }
    let wanted = attributes(request, &target)?;
    let writing = if request.flag("append")? {
        let flags = raw::O_WRONLY | raw::O_CREAT | raw::O_APPEND;
        let fd = sys::open_mode(target.as_bytes(), flags, wanted.mode).map_err(fail("write", path))?;
        Writing { fd, draft: Draft { path: None }, path: target, received: 0, job: None }
    } else {
        let mut name = [0u8; 8];
        sys::random_bytes(&mut name);
        let draft = alloc::format!("{parent}/.fluxvm-{}.part", hex::encode(&name)).into_bytes();
        let flags = raw::O_WRONLY | raw::O_CREAT | raw::O_EXCL | raw::O_NOFOLLOW;
        let fd = sys::open_mode(&draft, flags, 0o600).map_err(fail("write", path))?;
        let writing = Writing { fd, draft: Draft { path: Some(draft) }, path: target, received: 0, job: None };
        if let Some((uid, gid)) = wanted.owner {
            sys::fchown(writing.fd.raw(), uid, gid).map_err(fail("write", path))?;
        }
        sys::fchmod(writing.fd.raw(), wanted.mode).map_err(fail("write", path))?;
        writing
    };
    stream.send_json(&object! {});
    Ok(writing)
}

impl Writing {
    pub fn job_pipe(&self) -> Option<&OwnedFd> {
        self.job.as_ref().map(|job| &job.pipe)
    }

    pub fn pump(&mut self, stream: &mut Stream) -> Outcome {
        if let Some(job) = &mut self.job {
            return match job.poll() {
                None => Outcome::Idle,
                Some(Err(failure)) => Outcome::Fail(failure),
                Some(Ok(json)) => {
                    self.draft.path = None; // renamed, or removed by the job when that failed
                    Outcome::Reply(json)
                }
            };
        }
        match message::take(stream.rx()) {
            Err(failure) => Outcome::Fail(failure),
            Ok(Some(part)) => self.on_message(&part).unwrap_or_else(Outcome::Fail),
            Ok(None) if stream.is_input_over() => Outcome::Fail(Failure::invalid("The file's bytes ended without saying so; nothing was changed")),
            Ok(None) => Outcome::Idle,
        }
    }

    fn on_message(&mut self, part: &message::Message) -> Result<Outcome, Failure> {
        if part.kind == message::FILE {
            sys::write_all(self.fd.raw(), &part.body).map_err(fail("write", &self.path))?;
            self.received += part.body.len() as u64;
            return Ok(Outcome::Progress);
        }
        let end = guest_agent::json::parse(&part.body)?.u64("end")?;
        if part.kind != message::JSON || end != self.received {
            return Err(Failure::invalid("The file's length is not that of its bytes; nothing was changed"));
        }
        let (path, draft, size) = (self.path.clone(), self.draft.path.clone(), self.received);
        self.job = Some(job::spawn(Some(&self.fd), move |fd| commit(fd, &path, draft.as_deref(), size))?);
        Ok(Outcome::Watch)
    }
}

fn commit(fd: Option<OwnedFd>, path: &str, draft: Option<&[u8]>, size: u64) -> Result<Value, Failure> {
    let flush = || {
        sys::fsync(fd.as_ref().map_or(-1, OwnedFd::raw))?;
        draft.map_or(Ok(()), |draft| sys::rename(draft, path.as_bytes(), true))
    };
    flush().map_err(|error| {
        if let Some(draft) = draft {
            let _ = sys::unlink(draft, false);
        }
        file_failure(error.0, "write", path.as_bytes())
    })?;
    let stat = sys::stat(path.as_bytes(), true).map_err(fail("stat", path))?;
    Ok(object! { "written": size, "stat": stat_value(path, &stat) })
}

// --- listing ---

pub struct Listing {
    fd: OwnedFd,
    path: String,
    records: Vec<u8>,
    at: usize,
    sent: u64,
}

pub fn list(request: &Value, stream: &mut Stream) -> Result<Listing, Failure> {
    request.only(&["op", "path"])?;
    let path = path_of(request, "path")?;
    let fd = sys::open(path.as_bytes(), raw::O_RDONLY | raw::O_DIRECTORY).map_err(fail("list", path))?;
    stream.send_json(&object! {});
    Ok(Listing { fd, path: path.trim_end_matches('/').into(), records: Vec::new(), at: 0, sent: 0 })
}

impl Listing {
    pub fn pump(&mut self, stream: &mut Stream, scratch: &mut [u8]) -> Outcome {
        if !stream.wants_output() {
            return Outcome::Idle;
        }
        if self.at >= self.records.len() {
            let count = match sys::read_directory(self.fd.raw(), &mut scratch[..8192]) {
                Ok(count) => count,
                Err(error) => return Outcome::Fail(file_failure(error.0, "list", self.path.as_bytes())),
            };
            if count == 0 {
                stream.send_json(&object! { "end": self.sent });
                return Outcome::Finish;
            }
            self.records = scratch[..count].to_vec();
            self.at = 0;
        }
        let mut entries = Vec::new();
        let mut path_bytes = 0;
        while let Some((name, rest)) = sys::next_entry(&self.records[self.at..]) {
            if entries.len() >= BATCH_ENTRIES || path_bytes >= BATCH_PATH_BYTES {
                break;
            }
            if name != b"." && name != b".." {
                // One that went away meanwhile is not in the list.
                if let Ok(stat) = sys::stat_at(self.fd.raw(), name) {
                    let path = alloc::format!("{}/{}", self.path, String::from_utf8_lossy(name));
                    path_bytes += path.len();
                    entries.push(stat_value(&path, &stat));
                }
            }
            self.at = self.records.len() - rest.len();
        }
        if !entries.is_empty() {
            self.sent += entries.len() as u64;
            stream.send_json(&object! { "entries": entries });
        }
        Outcome::Progress
    }
}

// --- watching ---

pub struct Watching {
    pub fd: OwnedFd,
}

pub fn watch(request: &Value, stream: &mut Stream) -> Result<Watching, Failure> {
    request.only(&["op", "path"])?;
    let path = path_of(request, "path")?;
    let fd = sys::inotify(path.as_bytes()).map_err(fail("watch", path))?;
    stream.send_json(&object! {});
    Ok(Watching { fd })
}

const EVENTS: [(u32, &str); 10] = [
    (0x2, "modified"),
    (0x4, "attributes"),
    (0x8, "closed"),
    (0x40, "moved_from"),
    (0x80, "moved_to"),
    (0x100, "created"),
    (0x200, "removed"),
    (0x400, "self_removed"),
    (0x800, "self_moved"),
    (0x4000, "overflow"),
];

impl Watching {
    /// A reader that is too slow makes the kernel's queue overflow, which is told as an event of its own.
    pub fn pump(&mut self, stream: &mut Stream, scratch: &mut [u8]) -> Outcome {
        if stream.is_input_over() {
            return Outcome::Finish;
        }
        if !stream.wants_output() {
            return Outcome::Idle;
        }
        let Ok(count) = sys::read(self.fd.raw(), &mut scratch[..8192]) else {
            return Outcome::Idle;
        };
        let mut events = Vec::new();
        let mut rest = &scratch[..count];
        while let Some((head, tail)) = rest.split_first_chunk::<16>() {
            let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (mask, length) = (word(4), word(12) as usize);
            let Some(name) = tail.get(..length) else { break };
            rest = &tail[length..];
            let name = name.split(|b| *b == 0).next().unwrap_or_default();
            for (_, kind) in EVENTS.iter().filter(|(bit, _)| mask & bit != 0) {
                events.push(object! { "kind": *kind, "name": String::from_utf8_lossy(name).into_owned(), "directory": mask & 0x4000_0000 != 0 });
            }
        }
        if !events.is_empty() {
            stream.send_json(&object! { "events": events });
        }
        Outcome::Progress
    }
}

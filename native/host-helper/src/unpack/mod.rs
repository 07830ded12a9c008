//! `unpack`: makes an ext4 file system of image layers that nobody has reason to trust.
//!
//! ```text
//! daemon ──layers (stream.rs)──> supervisor ─┬─ cell 1: tar.rs → apply.rs → staging directory
//!        <──one line of JSON───              └─ cell 2: mke2fs reads the staging directory, writes the disk's file
//! ```
//! The supervisor parses nothing of the image and ends with exit code 0 or 1, having printed what was done or why
//! not. It leaves the staging directory to the daemon, which removes it with the rest of the import's directory.
mod apply;
#[cfg(test)]
mod apply_tests;
mod confine;
mod ext4;
mod ext4_times;
mod failure;
mod name;
mod stream;
mod tar;
#[cfg(test)]
mod tar_tests;
mod tree;

use apply::{Applier, Limits};
use confine::{IdMap, View};
use ext4::{Content, MakeOptions};
use failure::{Failure, Kind, Outcome};
use nix::fcntl::OFlag;
use serde::Deserialize;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use stream::LayerStream;
use tar::Source;
use tree::{Place, Tree};

/// The one argument, as JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    /// An empty directory for this work alone.
    work: PathBuf,
    /// The file to make; must not exist.
    disk: PathBuf,
    mke2fs: PathBuf,
    uuid: String,
    hash_seed: String,
    /// Time stamped on what has none of its own, in seconds.
    epoch: u64,
    min_bytes: u64,
    max_bytes: u64,
    max_files: u64,
}

/// Entry point of `fluxvm-host-helper unpack SPEC`; the result is the exit code.
pub fn main(args: &[String]) -> i32 {
    confine::die_with_parent();
    let result = match args {
        [spec] => serde_json::from_str::<Spec>(spec)
            .map_err(|e| Failure::new(Kind::System, format!("the specification is wrong: {e}")))
            .and_then(|spec| supervise(&spec)),
        _ => Err(Failure::new(Kind::System, "usage: unpack SPEC")),
    };
    match result {
        Ok(line) => {
            println!("{line}");
            0
        }
        Err(failure) => {
            println!("{}", serde_json::json!({ "ok": false, "kind": failure.kind, "message": failure.message, "entry": failure.entry }));
            1
        }
    }
}

fn supervise(spec: &Spec) -> Outcome<String> {
    let ids = IdMap::choose();
    let staging = spec.work.join("staging");
    make_directory(&staging, &ids)?;
    let limits = Limits { max_bytes: spec.max_bytes, max_files: spec.max_files, keep_owner: ids != IdMap::Single };
    let (report, totals) = unpack(&staging, limits, &ids)?;
    let disk_bytes = make_file_system(spec, &staging, report, &ids)?;
    Ok(serde_json::json!({
        "ok": true, "files": totals.files, "bytes": totals.bytes, "inodes": report.inodes, "diskBytes": disk_bytes, "ownersKept": limits.keep_owner,
    })
    .to_string())
}

/// What the worker of cell 1 tells the supervisor.
#[derive(serde::Serialize, Deserialize)]
struct Unpacked {
    content: Content,
    files: u64,
    bytes: u64,
}

fn unpack(staging: &Path, limits: Limits, ids: &IdMap) -> Outcome<(Content, apply::Totals)> {
    let (read, write) = nix::unistd::pipe().map_err(|e| Failure::errno("make a pipe", e))?;
    let code = confine::run(View::Staging(staging), ids, || {
        let line = match work(limits) {
            Ok(done) => serde_json::json!({ "done": done }),
            Err(failure) => serde_json::json!({ "kind": failure.kind, "message": failure.message, "entry": failure.entry }),
        };
        // Short enough for the pipe's buffer, so the supervisor need not read meanwhile.
        i32::from(nix::unistd::write(&write, line.to_string().as_bytes()).is_err())
    });
    drop(write);
    let mut text = String::new();
    let _ = File::from(read).take(64 << 10).read_to_string(&mut text);
    // The layers' end is the supervisor's too: what is left in the pipe must not keep the daemon writing.
    match (code, serde_json::from_str::<serde_json::Value>(&text)) {
        (Ok(0), Ok(value)) => parse_report(value),
        (Err(failure), _) => Err(Failure::new(failure.kind, format!("unpacking {}", failure.message))),
        (Ok(code), _) => Err(Failure::new(Kind::System, format!("unpacking ended with code {code}"))),
    }
}

fn parse_report(value: serde_json::Value) -> Outcome<(Content, apply::Totals)> {
    let wrong = |_| Failure::new(Kind::System, "unpacking reported something strange");
    if let Some(done) = value.get("done") {
        let done: Unpacked = serde_json::from_value(done.clone()).map_err(wrong)?;
        return Ok((done.content, apply::Totals { files: done.files, bytes: done.bytes }));
    }
    let text = |key: &str| value.get(key).and_then(|v| v.as_str()).unwrap_or_default().to_string();
    let kind = serde_json::from_value(value.get("kind").cloned().unwrap_or_default()).map_err(wrong)?;
    Err(Failure { kind, message: text("message"), entry: text("entry") })
}

/// Cell 1: reads the layers from standard input and builds the tree at `/`.
fn work(limits: Limits) -> Outcome<Unpacked> {
    let root = open_root()?;
    let mut applier = Applier::new(open_root()?, limits);
    let mut input = LayerStream::new(std::io::stdin().lock());
    let mut number = 0;
    while input.next_layer()? {
        number += 1;
        applier.apply_layer(LayerSource(&mut input)).map_err(|mut failure| {
            failure.message = format!("layer {number}: {}", failure.message);
            failure
        })?;
    }
    let totals = applier.finish()?;
    let tree = Tree::new(root);
    let place =
        Place { directory: tree.open(b"", OFlag::O_RDONLY | OFlag::O_DIRECTORY).map_err(|e| Failure::errno("open the root", e))?, path: Vec::new() };
    Ok(Unpacked { content: ext4::measure(&place)?, files: totals.files, bytes: totals.bytes })
}

struct LayerSource<'a, R: Read>(&'a mut LayerStream<R>);

impl<R: Read> Source for LayerSource<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> Outcome<usize> {
        self.0.read_layer(buffer)
    }
}

fn open_root() -> Outcome<OwnedFd> {
    nix::fcntl::open("/", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, nix::sys::stat::Mode::empty())
        .map_err(|e| Failure::errno("open the root", e))
}

const MAX_ATTEMPTS: u32 = 3;

/// Cell 2, tried again with more room where the estimate was too small.
fn make_file_system(spec: &Spec, staging: &Path, content: Content, ids: &IdMap) -> Outcome<u64> {
    let mut room = content;
    for attempt in 1..=MAX_ATTEMPTS {
        let geometry = ext4::plan(room, spec.min_bytes);
        let disk = create_disk(spec, geometry.bytes, ids)?;
        let result = run_mke2fs(spec, staging, &MakeOptions { geometry, uuid: &spec.uuid, hash_seed: &spec.hash_seed, epoch: spec.epoch }, ids)?;
        match result {
            None => {
                let owner = IdMap::Single.root();
                fchown(&disk, Some(owner.0.as_raw()), Some(owner.1.as_raw())).map_err(|e| Failure::io("take the disk over", &e))?;
                disk.sync_all().map_err(|e| Failure::io("write the disk", &e))?;
                return Ok(geometry.bytes);
            }
            Some(stderr) if attempt < MAX_ATTEMPTS && ext4::says_too_small(&stderr) => {
                room = Content { inodes: room.inodes * 2, blocks: room.blocks * 2 };
                fs::remove_file(&spec.disk).map_err(|e| Failure::io("remove the disk", &e))?;
            }
            Some(stderr) => return Err(ext4::failed(&stderr)),
        }
    }
    Err(Failure::new(Kind::Tool, "mke2fs failed"))
}

fn create_disk(spec: &Spec, bytes: u64, ids: &IdMap) -> Outcome<File> {
    let io = |e: std::io::Error| Failure::io("make the disk", &e);
    let disk = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&spec.disk).map_err(io)?;
    disk.set_len(bytes).map_err(io)?;
    let (uid, gid) = ids.root();
    fchown(&disk, Some(uid.as_raw()), Some(gid.as_raw())).map_err(io)?;
    Ok(disk)
}

/// `None` when it went well, else what mke2fs said.
fn run_mke2fs(spec: &Spec, staging: &Path, options: &MakeOptions<'_>, ids: &IdMap) -> Outcome<Option<String>> {
    let at = spec.work.join("view");
    fs::create_dir_all(&at).map_err(|e| Failure::io("make the view", &e))?;
    let log_path = spec.work.join("mke2fs.log");
    let log = File::create(&log_path).map_err(|e| Failure::io("make a log", &e))?;
    let tool = find_tool(&spec.mke2fs)?;
    let view = View::Mke2fs { at: &at, tool: &tool, staging, disk: &spec.disk };
    let code = confine::run(view, ids, || {
        if !redirect(&log) {
            return 127;
        }
        make_and_settle(options)
    })?;
    if code == 0 {
        return Ok(None);
    }
    let mut said = String::new();
    let _ = File::open(&log_path).map(|file| file.take(64 << 10).read_to_string(&mut said));
    Ok(Some(if said.is_empty() { format!("exit code {code}") } else { said }))
}

/// Cell 2: mke2fs in a child, then the times.
fn make_and_settle(options: &MakeOptions<'_>) -> i32 {
    // SAFETY: this process has one thread.
    let code = match unsafe { nix::unistd::fork() } {
        Ok(nix::unistd::ForkResult::Child) => {
            let code = ext4::exec_mke2fs(options);
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        Ok(nix::unistd::ForkResult::Parent { child }) => confine::wait(child),
        Err(errno) => Err(Failure::errno("fork", errno)),
    };
    let settled = code.and_then(|code| {
        if code != 0 {
            return Ok(code);
        }
        let disk = OpenOptions::new().read(true).write(true).open("/out/disk").map_err(|e| Failure::io("open the disk", &e))?;
        ext4_times::settle(&disk).map(|()| 0)
    });
    settled.unwrap_or_else(|failure| {
        eprintln!("{}", failure.message);
        1
    })
}

/// Standard output and error to the log, standard input empty: mke2fs gets nothing of the daemon's.
fn redirect(log: &File) -> bool {
    let (Ok((empty, _)), log) = (nix::unistd::pipe(), log.as_raw_fd()) else { return false };
    // SAFETY: the descriptors are open; 0 to 2 are replaced, which nothing here uses any more.
    unsafe { libc::dup2(empty.as_raw_fd(), 0) == 0 && libc::dup2(log, 1) == 1 && libc::dup2(log, 2) == 2 }
}

fn find_tool(tool: &Path) -> Outcome<PathBuf> {
    if tool.is_absolute() {
        return fs::canonicalize(tool).map_err(|_| Failure::new(Kind::Tool, format!("{} is not there", tool.display())));
    }
    for directory in ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin"] {
        if let Ok(path) = fs::canonicalize(Path::new(directory).join(tool)) {
            return Ok(path);
        }
    }
    Err(Failure::new(Kind::Tool, format!("{} is not installed", tool.display())))
}

fn make_directory(path: &Path, ids: &IdMap) -> Outcome<()> {
    let io = |e: std::io::Error| Failure::io("make the staging directory", &e);
    fs::create_dir(path).map_err(io)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(io)?;
    let (uid, gid) = ids.root();
    std::os::unix::fs::chown(path, Some(uid.as_raw()), Some(gid.as_raw())).map_err(io)
}

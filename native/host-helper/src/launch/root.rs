//! A root of its own: a read-only tmpfs holding exactly the mounts listed and a minimal /dev.
//!
//! Sources are opened in the host's view before anything is hidden, then bound through /proc/self/fd. Everything is
//! nosuid; only /dev is not nodev. A device asked for belongs to the process there, whoever owns it on the host. The old root is detached at the end, so nothing of the host stays visible.
use super::spec::{Credentials, Device, Mount, Root};
use crate::failure::{Failure, Outcome};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where the new root is assembled. Any directory does: it is covered only in this mount namespace.
const BASES: [&str; 3] = ["/tmp", "/mnt", "/run"];
const PLAIN_DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

struct Source {
    file: File,
    is_dir: bool,
    /// Number and type of a device node.
    device: Option<(libc::dev_t, libc::mode_t)>,
}

fn step(target: &str) -> String {
    format!("mount:{target}")
}

fn open_source(path: &str, optional: bool, at: &str) -> Outcome<Option<Source>> {
    match OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path) {
        Ok(file) => {
            let metadata = file.metadata().map_err(|e| Failure::io(&step(at), path, &e))?;
            let kind = metadata.mode() & libc::S_IFMT;
            let device = matches!(kind, libc::S_IFCHR | libc::S_IFBLK).then(|| (metadata.rdev(), kind));
            Ok(Some(Source { file, is_dir: metadata.is_dir(), device }))
        }
        Err(e) if optional && e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Failure::io(&step(at), path, &e)),
    }
}

/// Must be called in a fresh mount namespace.
pub fn enter(root: &Root, owner: Option<&Credentials>) -> Outcome<()> {
    let none: Option<&str> = None;
    let fail = |what: &str| {
        let what = what.to_string();
        move |e| Failure::nix("root", &what, e)
    };
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(fail("make mounts private"))?;
    let sources = root.mounts.iter().map(open_mount_source).collect::<Outcome<Vec<_>>>()?;
    let devices = open_devices(&root.devices)?;
    let base = BASES.iter().map(Path::new).find(|p| p.is_dir()).ok_or_else(|| Failure::of("system", "root", "no directory to build on"))?;
    mount(Some("tmpfs"), base, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=755,size=4m")).map_err(fail("tmpfs"))?;
    for (entry, source) in root.mounts.iter().zip(&sources) {
        place(base, entry, source.as_ref())?;
    }
    make_dev(base, &devices, owner)?;
    nix::unistd::chdir(base).map_err(fail("enter"))?;
    nix::unistd::pivot_root(".", ".").map_err(fail("pivot"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(fail("detach the old root"))?;
    nix::unistd::chdir("/").map_err(fail("enter"))?;
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(none, "/", none, flags, none).map_err(fail("make read-only"))
}

fn open_mount_source(entry: &Mount) -> Outcome<Option<Source>> {
    match entry {
        Mount::Bind { source, target, optional, .. } => open_source(source, *optional, target),
        Mount::Tmpfs { .. } | Mount::Proc { .. } | Mount::Symlink { .. } => Ok(None),
    }
}

fn open_devices(extra: &[Device]) -> Outcome<Vec<(String, Source)>> {
    let plain = PLAIN_DEVICES.iter().map(|p| Device { path: (*p).into(), optional: false });
    let mut opened = Vec::new();
    for device in plain.chain(extra.iter().cloned()) {
        if !device.path.starts_with("/dev/") || device.path.contains("/../") {
            return Err(Failure::of("invalid", "root", format!("not under /dev: {}", device.path)));
        }
        if let Some(source) = open_source(&device.path, device.optional, &device.path)? {
            opened.push((device.path, source));
        }
    }
    Ok(opened)
}

fn inside(base: &Path, target: &str) -> PathBuf {
    base.join(target.trim_start_matches('/'))
}

fn make_dir(path: &Path, at: &str) -> Outcome<()> {
    std::fs::create_dir_all(path).map_err(|e| Failure::io(&step(at), "make directory", &e))
}

fn make_mount_point(path: &Path, is_dir: bool, at: &str) -> Outcome<()> {
    if is_dir {
        return make_dir(path, at);
    }
    make_dir(path.parent().unwrap_or(path), at)?;
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(Failure::io(&step(at), "make mount point", &e)),
    }
}

fn place(base: &Path, entry: &Mount, source: Option<&Source>) -> Outcome<()> {
    let none: Option<&str> = None;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    match entry {
        Mount::Bind { target, readonly, .. } => match source {
            Some(source) => bind(source, &inside(base, target), target, libc::MOUNT_ATTR_NODEV | if *readonly { libc::MOUNT_ATTR_RDONLY } else { 0 }),
            None => Ok(()),
        },
        Mount::Tmpfs { target, size_bytes } => {
            let path = inside(base, target);
            make_dir(&path, target)?;
            let data = format!("mode=1777,size={}", size_bytes.unwrap_or(16 << 20));
            mount(Some("tmpfs"), &path, Some("tmpfs"), flags | MsFlags::MS_NOEXEC, Some(data.as_str()))
                .map_err(|e| Failure::nix(&step(target), "tmpfs", e))
        }
        Mount::Proc { target } => {
            let path = inside(base, target);
            make_dir(&path, target)?;
            mount(Some("proc"), &path, Some("proc"), flags | MsFlags::MS_NOEXEC, Some("hidepid=2"))
                .or_else(|_| mount(Some("proc"), &path, Some("proc"), flags | MsFlags::MS_NOEXEC, none))
                .map_err(|e| Failure::nix(&step(target), "proc", e))
        }
        Mount::Symlink { source, target } => {
            let path = inside(base, target);
            make_dir(path.parent().unwrap_or(&path), target)?;
            std::os::unix::fs::symlink(source, &path).map_err(|e| Failure::io(&step(target), "symlink", &e))
        }
    }
}

fn bind(source: &Source, path: &Path, at: &str, attributes: u64) -> Outcome<()> {
    let none: Option<&str> = None;
    make_mount_point(path, source.is_dir, at)?;
    let from = format!("/proc/self/fd/{}", source.file.as_raw_fd());
    mount(Some(from.as_str()), path, none, MsFlags::MS_BIND | MsFlags::MS_REC, none).map_err(|e| Failure::nix(&step(at), "bind", e))?;
    restrict(path, at, attributes | libc::MOUNT_ATTR_NOSUID)
}

/// Sets mount attributes on a mount and all below it (mount_setattr(2), Linux 5.12).
fn restrict(path: &Path, at: &str, set: u64) -> Outcome<()> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
        .open(path)
        .map_err(|e| Failure::io(&step(at), "open mount", &e))?;
    let attributes = libc::mount_attr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_RECURSIVE | libc::AT_EMPTY_PATH;
    // SAFETY: the path is an empty string that ends with zero; the structure has the size passed.
    let result = unsafe {
        libc::syscall(libc::SYS_mount_setattr, file.as_raw_fd(), c"".as_ptr(), flags, &attributes, std::mem::size_of::<libc::mount_attr>())
    };
    if result == 0 { Ok(()) } else { Err(Failure::last(&step(at), "restrict mount")) }
}

fn make_dev(base: &Path, devices: &[(String, Source)], owner: Option<&Credentials>) -> Outcome<()> {
    let dev = base.join("dev");
    make_dir(&dev, "/dev")?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), &dev, Some("tmpfs"), flags, Some("mode=755,size=64k")).map_err(|e| Failure::nix("mount:/dev", "tmpfs", e))?;
    for (path, source) in devices {
        let target = inside(base, path);
        let own = !PLAIN_DEVICES.contains(&path.as_str()) && make_node(source, &target, owner, path)?;
        if !own {
            bind(source, &target, path, libc::MOUNT_ATTR_NOEXEC)?;
        }
    }
    let none: Option<&str> = None;
    let readonly = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | flags;
    mount(none, &dev, none, readonly, none).map_err(|e| Failure::nix("mount:/dev", "make read-only", e))
}

/// A node of the same device that belongs to the process; false where nodes may not be made (without root).
fn make_node(source: &Source, target: &Path, owner: Option<&Credentials>, at: &str) -> Outcome<bool> {
    use nix::sys::stat::{Mode, SFlag, mknod};
    let Some((number, kind)) = source.device else { return Ok(false) };
    make_dir(target.parent().unwrap_or(target), at)?;
    let (kind, mode) = (SFlag::from_bits_truncate(kind), Mode::S_IRUSR | Mode::S_IWUSR);
    if mknod(target, kind, mode, number).is_err() {
        return Ok(false);
    }
    if let Some(ids) = owner {
        std::os::unix::fs::chown(target, Some(ids.uid), Some(ids.gid)).map_err(|e| Failure::io(&step(at), "own device", &e))?;
    }
    Ok(true)
}

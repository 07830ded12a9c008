//! Mounting, before and after the root disk becomes `/`.

use alloc::vec::Vec;

use crate::init::report;
use crate::sys::{self, Fd, raw};

const NOT_FOR_PROGRAMS: u32 = raw::MS_NOSUID | raw::MS_NODEV | raw::MS_NOEXEC;

fn mount_at(source: &[u8], target: &[u8], kind: &[u8], flags: u32, data: &[u8]) -> sys::Result<()> {
    let _ = sys::mkdir(target, 0o755);
    match sys::mount(source, target, kind, flags, data) {
        Err(error) if error.is(sys::errno::EBUSY) => Ok(()), // it is there already
        result => result,
    }
}

/// What the kernel tells about itself, and its devices.
pub fn mount_kernel() {
    let _ = mount_at(b"proc", b"/proc", b"proc", NOT_FOR_PROGRAMS, b"");
    let _ = mount_at(b"sysfs", b"/sys", b"sysfs", NOT_FOR_PROGRAMS, b"");
    let _ = mount_at(b"devtmpfs", b"/dev", b"devtmpfs", raw::MS_NOSUID, b"mode=0755");
}

/// An initrd without device files gives PID 1 no console.
pub fn open_console() {
    if let Ok(console) = sys::open(b"/dev/console", raw::O_RDWR | raw::O_NOCTTY) {
        for fd in 0..3 {
            let _ = sys::duplicate(console.raw(), fd);
        }
    }
}

/// `/newroot` becomes `/`, with the kernel's mounts and an empty `/run`. What was in the initrd is freed.
pub fn switch_root() -> sys::Result<()> {
    for (from, to) in [(&b"/dev"[..], &b"/newroot/dev"[..]), (b"/proc", b"/newroot/proc"), (b"/sys", b"/newroot/sys")] {
        let _ = sys::mkdir(to, 0o755);
        sys::mount(from, to, b"", raw::MS_MOVE, b"")?;
    }
    let old = sys::open(b"/", raw::O_RDONLY | raw::O_DIRECTORY)?;
    sys::chdir(b"/newroot")?;
    sys::mount(b".", b"/", b"", raw::MS_MOVE, b"")?;
    sys::chroot(b".")?;
    sys::chdir(b"/")?;
    let _ = mount_at(b"tmpfs", b"/run", b"tmpfs", raw::MS_NOSUID | raw::MS_NODEV, b"mode=0755");
    if let Ok(stat) = sys::fstat(old.raw()) {
        remove_below(old.raw(), stat.device, 0);
    }
    Ok(())
}

/// Frees the initrd's memory. Goes into no other file system.
fn remove_below(directory: Fd, device: (u32, u32), depth: usize) {
    let mut buffer = alloc::vec![0u8; 8192];
    while let Ok(count) = sys::read_directory(directory, &mut buffer) {
        if count == 0 || depth > 32 {
            return;
        }
        let records: Vec<u8> = buffer[..count].to_vec();
        let mut rest = &records[..];
        while let Some((name, next)) = sys::next_entry(rest) {
            rest = next;
            if name != b"." && name != b".." {
                remove_entry(directory, name, device, depth);
            }
        }
    }
}

fn remove_entry(directory: Fd, name: &[u8], device: (u32, u32), depth: usize) {
    let Ok(stat) = sys::stat_at(directory, name) else { return };
    if stat.device != device {
        return;
    }
    if stat.is_directory() {
        if let Ok(child) = sys::open_at(directory, name, raw::O_RDONLY | raw::O_DIRECTORY | raw::O_NOFOLLOW) {
            remove_below(child.raw(), device, depth + 1);
        }
    }
    let _ = sys::unlink_at(directory, name, stat.is_directory());
}

/// What programs expect where no init of the image mounts it.
pub fn mount_for_programs() {
    report("mount /dev/pts", mount_at(b"devpts", b"/dev/pts", b"devpts", raw::MS_NOSUID | raw::MS_NOEXEC, b"gid=5,mode=0620,ptmxmode=0666"));
    report("mount /dev/shm", mount_at(b"tmpfs", b"/dev/shm", b"tmpfs", raw::MS_NOSUID | raw::MS_NODEV, b"mode=1777"));
    let _ = mount_at(b"cgroup2", b"/sys/fs/cgroup", b"cgroup2", NOT_FOR_PROGRAMS, b"");
    for (target, link) in [
        (&b"/proc/self/fd"[..], &b"/dev/fd"[..]),
        (b"/proc/self/fd/0", b"/dev/stdin"),
        (b"/proc/self/fd/1", b"/dev/stdout"),
        (b"/proc/self/fd/2", b"/dev/stderr"),
    ] {
        let _ = sys::symlink(target, link);
    }
    if !sys::exists(b"/tmp") && sys::mkdir(b"/tmp", 0o1777).is_ok() {
        let _ = sys::chmod(b"/tmp", 0o1777);
    }
}

/// Undoes what was mounted, deepest first; the root turns read-only.
pub fn unmount_all() {
    let table = sys::read_file(b"/proc/self/mounts", 1 << 20).unwrap_or_default();
    let mut targets: Vec<&[u8]> = table.split(|b| *b == b'\n').filter_map(|line| line.split(|b| *b == b' ').nth(1)).collect();
    targets.reverse();
    for target in targets.into_iter().filter(|t| !matches!(*t, b"/" | b"/dev" | b"/proc" | b"/sys")) {
        let _ = sys::unmount(target, raw::MNT_DETACH);
    }
    let _ = sys::mount(b"", b"/", b"", raw::MS_REMOUNT | raw::MS_RDONLY, b"");
}

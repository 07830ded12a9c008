//! Kernel modules and disks.

use alloc::string::String;
use alloc::vec::Vec;

use guest_agent::failure::describe;

use crate::log;
use crate::sys::{self, raw};

const MAX_LIST_BYTES: usize = 64 * 1024;

/// A module file that is open, so that it can be loaded also after the initrd is gone.
struct Module {
    path: Vec<u8>,
    file: sys::Result<sys::OwnedFd>,
}

/// Opens the modules a file lists, in its order.
fn open_modules(list: &[u8]) -> Vec<Module> {
    let text = sys::read_file(list, MAX_LIST_BYTES).unwrap_or_default();
    let paths = text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).filter(|p| !p.is_empty() && p[0] != b'#');
    paths.map(|path| Module { path: path.to_vec(), file: sys::open(path, raw::O_RDONLY) }).collect()
}

/// One that is missing or refused is said and passed over.
fn load(module: &Module) {
    let compressed = [&b".xz"[..], b".gz", b".zst"].iter().any(|end| module.path.ends_with(end));
    let path = String::from_utf8_lossy(&module.path);
    match module.file.as_ref().map(|file| sys::load_module(file.raw(), compressed)) {
        Err(error) => log!("cannot open {}: {}", path, describe(error.0)),
        Ok(Err(error)) if error.is(sys::errno::ENOENT) => log!("cannot load {}: it needs one that is not loaded yet", path),
        Ok(Err(error)) if !error.is(sys::errno::EEXIST) => log!("cannot load {}: {}", path, describe(error.0)),
        Ok(_) => {}
    }
}

pub fn load_modules(list: &[u8]) {
    open_modules(list).iter().for_each(load);
}

/// Loads them from a process of its own, with what processor time nobody else wants: nothing at boot waits for these.
pub fn load_modules_aside(list: &[u8]) {
    let modules = open_modules(list);
    if let Ok(sys::Fork::Child) = sys::fork() {
        sys::set_nice(19);
        modules.iter().for_each(load);
        sys::exit(0);
    }
}

pub fn has_disk(serial: &[u8]) -> bool {
    find_disk(serial).is_some()
}

fn find_disk(serial: &[u8]) -> Option<Vec<u8>> {
    sys::list_directory(b"/sys/block", 1024).ok()?.into_iter().find(|name| {
        let path = [b"/sys/block/", &name[..], b"/serial"].concat();
        name.starts_with(b"vd") && sys::read_file(&path, 256).is_ok_and(|text| text.trim_ascii() == serial)
    })
}

/// The name of the virtio disk with this serial, `vda` say, once it is there with its device file.
pub fn wait_for_disk(serial: &[u8], timeout_ms: u64) -> Option<Vec<u8>> {
    wait_for(timeout_ms, || find_disk(serial).filter(|name| sys::exists(&[b"/dev/", &name[..]].concat())))
}

/// Tries again with each kernel event until `find` finds or the time is over.
pub fn wait_for<T>(timeout_ms: u64, find: impl Fn() -> Option<T>) -> Option<T> {
    if let Some(found) = find() {
        return Some(found);
    }
    let events = sys::uevent_socket().ok()?;
    let deadline = sys::clock_ms(sys::CLOCK_BOOTTIME) + timeout_ms;
    loop {
        // Looked for after the socket is there, so that no event falls in between.
        if let Some(found) = find() {
            return Some(found);
        }
        let now = sys::clock_ms(sys::CLOCK_BOOTTIME);
        if now >= deadline {
            return None;
        }
        sys::wait_readable(events.raw(), (deadline - now).min(500));
        sys::drain(events.raw());
    }
}

fn read_number(path: &[u8]) -> Option<u64> {
    let text = sys::read_file(path, 64).ok()?;
    core::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// Grows a mounted ext4 to its disk, when the disk is larger by a block or more.
pub fn grow_ext4(disk: &[u8], mounted_at: &[u8]) -> sys::Result<()> {
    let device = sys::open(&[b"/dev/", disk].concat(), raw::O_RDONLY)?;
    let mut superblock = [0u8; 1024];
    sys::pread(device.raw(), &mut superblock, 1024)?;
    let word = |at: usize| u64::from(u32::from_le_bytes([superblock[at], superblock[at + 1], superblock[at + 2], superblock[at + 3]]));
    // Offsets of the kernel's Documentation/filesystems/ext4/super.rst.
    let block_bytes = 1024u64 << word(0x18).min(6);
    let has_64bit = word(0x60) & 0x80 != 0;
    let blocks = word(0x4) | if has_64bit { word(0x150) << 32 } else { 0 };
    let sectors = read_number(&[b"/sys/class/block/", disk, b"/size"].concat()).unwrap_or(0);
    let wanted = sectors * 512 / block_bytes;
    if wanted <= blocks {
        return Ok(());
    }
    sys::ext4_resize(mounted_at, wanted)
}

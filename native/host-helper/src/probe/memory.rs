//! Memory: faults handled in user space, and huge pages.
use super::{Fault, Verdict, fault, works_with};
use serde_json::json;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Numbers and structures of `linux/userfaultfd.h`.
const UFFD_API: u64 = 0xAA;
const UFFDIO_API: u64 = 0xC018_AA3F;
const UFFDIO_REGISTER: u64 = 0xC020_AA00;
const UFFDIO_COPY: u64 = 0xC028_AA03;
const REGISTER_MODE_MISSING: u64 = 1;
/// Faults of system calls are not handled then.
const USER_MODE_ONLY: i32 = 1;
const PAGE: usize = 4096;

fn map(bytes: usize, flags: i32) -> *mut libc::c_void {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: a new private mapping anywhere.
    unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }
}

/// Registers a page, fills it by UFFDIO_COPY and reads it.
pub fn userfaultfd() -> Verdict {
    // SAFETY: no memory is passed; a result of zero or more is a descriptor that nobody else owns.
    let open = |flags: i32| unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK | flags) };
    let (mut fd, mut user_only) = (open(0), false);
    if fd < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM) {
        (fd, user_only) = (open(USER_MODE_ONLY), true);
    }
    if fd < 0 {
        return Err(fault("userfaultfd"));
    }
    // SAFETY: see above.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let mut api = [UFFD_API, 0, 0];
    let page = map(PAGE, 0);
    let content = vec![0x5Au8; PAGE];
    let mut register = [page as u64, PAGE as u64, REGISTER_MODE_MISSING, 0];
    let mut copy = [page as u64, content.as_ptr() as u64, PAGE as u64, 0, 0];
    for (request, argument, what) in [
        (UFFDIO_API, api.as_mut_ptr(), "agree on the API"),
        (UFFDIO_REGISTER, register.as_mut_ptr(), "register memory"),
        (UFFDIO_COPY, copy.as_mut_ptr(), "fill a page"),
    ] {
        // SAFETY: each structure has the size that its number encodes, and the memory it names stays mapped.
        if unsafe { libc::ioctl(fd.as_raw_fd(), request as _, argument) } != 0 {
            return Err(fault(what));
        }
    }
    // SAFETY: the page is mapped and filled.
    match unsafe { *(page.cast::<u8>()) } {
        0x5A => works_with("a page was filled through it", json!({ "features": format!("{:#x}", api[1]), "userModeOnly": user_only })),
        _ => Err(Fault::Broken("the page holds something else than what was put in".into())),
    }
}

fn read_number(path: &str) -> u64 {
    std::fs::read_to_string(path).ok().and_then(|t| t.trim().parse().ok()).unwrap_or(0)
}

/// Maps and touches one huge page of the default size.
pub fn hugepages() -> Verdict {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let size_kib: u64 = meminfo.lines().find_map(|l| l.strip_prefix("Hugepagesize:")?.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(0);
    if size_kib == 0 {
        return Err(Fault::Missing("the kernel has no huge pages".into()));
    }
    let total = read_number("/proc/sys/vm/nr_hugepages");
    if total == 0 {
        return Err(Fault::Missing(format!("none are reserved (pages of {size_kib} KiB)")));
    }
    let page = map((size_kib << 10) as usize, libc::MAP_HUGETLB);
    if page == libc::MAP_FAILED {
        return Err(Fault::Broken(format!("{total} are reserved, none is free")));
    }
    // SAFETY: the page is mapped writable; hugetlb reserved it, so touching it cannot fail.
    unsafe { *(page.cast::<u8>()) = 1 };
    works_with(format!("one of {total} was mapped ({size_kib} KiB each)"), json!({ "total": total, "sizeKib": size_kib }))
}

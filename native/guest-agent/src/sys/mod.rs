//! System calls, straight: no C library is linked. Wrappers are thin, keep no state, and return the kernel's error.
//! Paths are `&[u8]` and copied to a bounded, NUL-terminated buffer; one with a NUL inside is `EINVAL`.

mod file;
mod net;
mod process;

pub use file::*;
pub use net::*;
pub use process::*;

use core::arch::asm;

pub use linux_raw_sys::errno;
pub use linux_raw_sys::general as raw;

/// A kernel error number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    pub fn is(self, number: u32) -> bool {
        self.0 == number as i32
    }
    pub fn again(self) -> bool {
        self.is(errno::EAGAIN) || self.is(errno::EINTR)
    }
}

pub type Result<T> = core::result::Result<T, Errno>;

pub type Fd = i32;

/// A descriptor that is closed when dropped.
#[derive(Debug)]
pub struct OwnedFd(Fd);

impl OwnedFd {
    pub fn new(fd: Fd) -> OwnedFd {
        OwnedFd(fd)
    }
    pub fn raw(&self) -> Fd {
        self.0
    }
    pub fn into_raw(self) -> Fd {
        let fd = self.0;
        core::mem::forget(self);
        fd
    }
}

impl Drop for OwnedFd {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// # Safety
/// Pointers among the arguments must be valid for what the call does with them.
#[inline]
pub unsafe fn syscall(number: u32, args: [usize; 6]) -> Result<usize> {
    let result: isize;
    // SAFETY: the x86_64 Linux call convention; rcx and r11 are lost, memory may change.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as usize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

/// `call!(nr, a, b, …)`: a system call whose pointer arguments the caller vouches for.
macro_rules! call {
    (@fill $n:expr; $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        // SAFETY: each wrapper passes pointers to values it borrows for the call, with their true lengths.
        unsafe { $crate::sys::syscall($n, [$a as usize, $b as usize, $c as usize, $d as usize, $e as usize, $f as usize]) }
    };
    ($n:expr) => { call!(@fill $n; 0, 0, 0, 0, 0, 0) };
    ($n:expr, $a:expr) => { call!(@fill $n; $a, 0, 0, 0, 0, 0) };
    ($n:expr, $a:expr, $b:expr) => { call!(@fill $n; $a, $b, 0, 0, 0, 0) };
    ($n:expr, $a:expr, $b:expr, $c:expr) => { call!(@fill $n; $a, $b, $c, 0, 0, 0) };
    ($n:expr, $a:expr, $b:expr, $c:expr, $d:expr) => { call!(@fill $n; $a, $b, $c, $d, 0, 0) };
    ($n:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => { call!(@fill $n; $a, $b, $c, $d, $e, 0) };
    ($n:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => { call!(@fill $n; $a, $b, $c, $d, $e, $f) };
}
pub(crate) use call;

/// A NUL-terminated copy of a path on the stack.
pub struct CPath([u8; 4096]);

impl CPath {
    pub fn new(path: &[u8]) -> Result<CPath> {
        if path.contains(&0) {
            return Err(Errno(errno::EINVAL as i32));
        }
        if path.len() >= 4096 {
            return Err(Errno(errno::ENAMETOOLONG as i32));
        }
        let mut buffer = [0u8; 4096];
        buffer[..path.len()].copy_from_slice(path);
        Ok(CPath(buffer))
    }
    pub fn ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }
}

pub fn map_anonymous(bytes: usize) -> *mut u8 {
    let flags = raw::MAP_PRIVATE | raw::MAP_ANONYMOUS;
    match call!(raw::__NR_mmap, 0, bytes, raw::PROT_READ | raw::PROT_WRITE, flags, -1isize, 0) {
        Ok(address) => address as *mut u8,
        Err(_) => core::ptr::null_mut(),
    }
}

pub fn unmap(block: *mut u8, bytes: usize) {
    let _ = call!(raw::__NR_munmap, block, bytes);
}

// --- epoll, timers ---

pub const EPOLLIN: u32 = 1;
pub const EPOLLOUT: u32 = 4;
pub const EPOLLERR: u32 = 8;
pub const EPOLLHUP: u32 = 0x10;
pub const EPOLLRDHUP: u32 = 0x2000;
pub const EPOLLET: u32 = 1 << 31;

#[repr(C, packed)]
#[derive(Clone, Copy)]
pub struct EpollEvent {
    pub events: u32,
    pub data: u64,
}

pub fn epoll_create() -> Result<OwnedFd> {
    call!(raw::__NR_epoll_create1, raw::EPOLL_CLOEXEC).map(|fd| OwnedFd(fd as Fd))
}

pub fn epoll_add(epoll: Fd, fd: Fd, events: u32, data: u64) -> Result<()> {
    let event = EpollEvent { events, data };
    call!(raw::__NR_epoll_ctl, epoll, raw::EPOLL_CTL_ADD, fd, &raw const event).map(|_| ())
}

pub fn epoll_wait(epoll: Fd, events: &mut [EpollEvent], timeout_ms: i32) -> Result<usize> {
    call!(raw::__NR_epoll_pwait, epoll, events.as_mut_ptr(), events.len(), timeout_ms, 0, 8)
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Timespec {
    pub sec: i64,
    pub nsec: i64,
}

pub const CLOCK_REALTIME: u32 = 0;
pub const CLOCK_BOOTTIME: u32 = 7;

/// Milliseconds of a clock. Boot time never goes back within one guest, except by a snapshot restore.
pub fn clock_ms(clock: u32) -> u64 {
    let mut time = Timespec::default();
    let _ = call!(raw::__NR_clock_gettime, clock, &raw mut time);
    time.sec as u64 * 1000 + time.nsec as u64 / 1_000_000
}

pub fn clock_set_ms(wall_ms: u64) -> Result<()> {
    let time = Timespec { sec: (wall_ms / 1000) as i64, nsec: (wall_ms % 1000 * 1_000_000) as i64 };
    call!(raw::__NR_clock_settime, CLOCK_REALTIME, &raw const time).map(|_| ())
}

// --- the system as a whole ---

pub const REBOOT_POWER_OFF: u32 = 0x4321_fedc;
pub const REBOOT_AUTOBOOT: u32 = 0x0123_4567;

pub fn reboot(command: u32) {
    let _ = call!(raw::__NR_reboot, 0xfee1_deadu32, 672_274_793u32, command, 0);
}

pub fn sync() {
    let _ = call!(raw::__NR_sync);
}

pub fn set_hostname(name: &[u8]) -> Result<()> {
    call!(raw::__NR_sethostname, name.as_ptr(), name.len()).map(|_| ())
}

pub fn random_bytes(into: &mut [u8]) {
    // Non-blocking first: early in boot the pool may not be ready, and an id is no secret.
    if call!(raw::__NR_getrandom, into.as_mut_ptr(), into.len(), raw::GRND_INSECURE).is_err() {
        let _ = call!(raw::__NR_getrandom, into.as_mut_ptr(), into.len(), 0);
    }
}

/// Mixes bytes into the kernel's pool and credits them.
pub fn add_entropy(bytes: &[u8]) -> Result<()> {
    let mut request = [0u8; 8 + 512];
    let count = bytes.len().min(512);
    request[..4].copy_from_slice(&(count as u32 * 8).to_ne_bytes());
    request[4..8].copy_from_slice(&(count as u32).to_ne_bytes());
    request[8..8 + count].copy_from_slice(&bytes[..count]);
    let random = open(b"/dev/urandom", raw::O_WRONLY)?;
    const RNDADDENTROPY: u32 = 0x4008_5203;
    call!(raw::__NR_ioctl, random.raw(), RNDADDENTROPY, request.as_ptr())?;
    const RNDRESEEDCRNG: u32 = 0x5207;
    let _ = call!(raw::__NR_ioctl, random.raw(), RNDRESEEDCRNG, 0);
    Ok(())
}

pub fn load_module(file: Fd, compressed: bool) -> Result<()> {
    let flags = if compressed { 4 } else { 0 }; // MODULE_INIT_COMPRESSED_FILE
    call!(raw::__NR_finit_module, file, c"".as_ptr(), flags).map(|_| ())
}

/// Memory of the guest.
pub fn memory_bytes() -> usize {
    let mut info = [0u64; 16]; // struct sysinfo is 112 bytes
    let _ = call!(raw::__NR_sysinfo, info.as_mut_ptr());
    let unit = (info[13] as u32).max(1) as usize;
    info[4] as usize * unit
}

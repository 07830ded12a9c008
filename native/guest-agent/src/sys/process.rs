//! Processes, credentials and signals.

use super::{CPath, Errno, Fd, OwnedFd, Result, raw};
use crate::sys::call;

pub type Pid = i32;

pub fn exit(code: i32) -> ! {
    loop {
        let _ = call!(raw::__NR_exit_group, code);
    }
}

pub fn getpid() -> Pid {
    call!(raw::__NR_getpid).unwrap_or(0) as Pid
}

pub fn getuid() -> u32 {
    call!(raw::__NR_getuid).unwrap_or(0) as u32
}

pub enum Fork {
    Child,
    Parent(Pid),
}

/// Copies this process. The child has its own memory, so nothing it does is seen here.
pub fn fork() -> Result<Fork> {
    const SIGCHLD: usize = 17;
    match call!(raw::__NR_clone, SIGCHLD, 0, 0, 0, 0)? {
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid as Pid)),
    }
}

/// # Safety
/// `argv` and `envp` are arrays of NUL-terminated strings that end with a null pointer.
pub unsafe fn execve(path: &[u8], argv: *const *const u8, envp: *const *const u8) -> Errno {
    let path = match CPath::new(path) {
        Ok(path) => path,
        Err(error) => return error,
    };
    match call!(raw::__NR_execve, path.ptr(), argv, envp) {
        Err(error) => error,
        Ok(_) => Errno(0),
    }
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    Code(u8),
    Signal(u8),
}

/// One child that ended, if there is one. Never waits.
pub fn reap() -> Option<(Pid, Ended)> {
    let mut status = 0i32;
    let pid = call!(raw::__NR_wait4, -1isize, &raw mut status, raw::WNOHANG, 0).ok()?;
    if pid == 0 {
        return None;
    }
    let signal = (status & 0x7f) as u8;
    Some((pid as Pid, if signal == 0 { Ended::Code((status >> 8) as u8) } else { Ended::Signal(signal) }))
}

pub fn kill(pid: Pid, signal: u8) -> Result<()> {
    call!(raw::__NR_kill, pid as isize, signal).map(|_| ())
}

/// How little processor time this process wants, up to 19.
pub fn set_nice(nice: i32) {
    const PRIO_PROCESS: usize = 0;
    let _ = call!(raw::__NR_setpriority, PRIO_PROCESS, 0, nice as isize);
}

pub fn setsid() {
    let _ = call!(raw::__NR_setsid);
}

pub fn set_groups(groups: &[u32]) -> Result<()> {
    call!(raw::__NR_setgroups, groups.len(), groups.as_ptr()).map(|_| ())
}

pub fn set_gid(gid: u32) -> Result<()> {
    call!(raw::__NR_setresgid, gid, gid, gid).map(|_| ())
}

pub fn set_uid(uid: u32) -> Result<()> {
    call!(raw::__NR_setresuid, uid, uid, uid).map(|_| ())
}

pub const SIGNAL_INT: u8 = 2;
pub const SIGNAL_KILL: u8 = 9;
pub const SIGNAL_USR1: u8 = 10;
pub const SIGNAL_PIPE: u8 = 13;
pub const SIGNAL_TERM: u8 = 15;
pub const SIGNAL_CHILD: u8 = 17;
pub const SIGNAL_POWER: u8 = 30;

fn mask_of(signals: &[u8]) -> u64 {
    signals.iter().fold(0, |mask, signal| mask | 1 << (signal - 1))
}

/// Blocks the signals and gives a descriptor that tells of them.
pub fn signal_fd(signals: &[u8]) -> Result<OwnedFd> {
    let mask = mask_of(signals);
    call!(raw::__NR_rt_sigprocmask, 2, &raw const mask, 0, 8)?;
    call!(raw::__NR_signalfd4, -1isize, &raw const mask, 8, raw::O_NONBLOCK | raw::O_CLOEXEC).map(|fd| OwnedFd::new(fd as Fd))
}

#[repr(C)]
struct SignalAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

pub fn ignore_signal(signal: u8) {
    set_action(signal, 1);
}

fn set_action(signal: u8, handler: usize) {
    let action = SignalAction { handler, flags: 0, restorer: 0, mask: 0 };
    let _ = call!(raw::__NR_rt_sigaction, signal, &raw const action, 0, 8);
}

/// In a child before exec: every signal default and unblocked.
pub fn reset_signals() {
    for signal in 1..=64 {
        set_action(signal, 0);
    }
    let none = 0u64;
    let _ = call!(raw::__NR_rt_sigprocmask, 2, &raw const none, 0, 8);
}

/// In a child: closes every descriptor from `first` on, whatever the number.
pub fn close_from(first: Fd) {
    let _ = call!(raw::__NR_close_range, first, u32::MAX, 0);
}

pub fn set_umask(mask: u32) {
    let _ = call!(raw::__NR_umask, mask);
}

pub const SIGNAL_USR2: u8 = 12;

//! Tells when processes end. One thread waits on pidfds and on SIGCHLD; nothing polls.
//!
//! A child's status comes from waitpid. For others (adopted after a restart) /proc tells it until they are reaped, and
//! newer kernels tell it through the pidfd afterwards; else it is unknown. Orphans that nobody watches, such as log writers, are reaped on SIGCHLD.
use crate::failure::{Failure, Outcome};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const MAX_WATCHES: usize = 16_384;
const SIGCHLD_TOKEN: u64 = u64::MAX;

struct Watch {
    pidfd: OwnedFd,
    pid: i32,
    watch_id: u64,
}

pub struct Watcher {
    epoll: OwnedFd,
    children: OwnedFd,
    watches: Mutex<HashMap<u64, Watch>>,
    next_token: std::sync::atomic::AtomicU64,
    /// Launches under way: their short-lived children must not be reaped behind their back.
    pauses: AtomicUsize,
}

pub struct ReapingPause<'a>(&'a Watcher);

impl Drop for ReapingPause<'_> {
    fn drop(&mut self) {
        if self.0.pauses.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.reap_orphans();
        }
    }
}

fn owned(fd: i32, what: &str) -> Outcome<OwnedFd> {
    if fd < 0 {
        return Err(Failure::last("watch", what));
    }
    // SAFETY: the caller made the descriptor just now.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Watcher {
    /// Blocks SIGCHLD in the calling thread: call it before any thread is started.
    pub fn new() -> Outcome<Watcher> {
        // SAFETY: the set is initialised by sigemptyset before use.
        let (epoll, children) = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGCHLD);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            (libc::epoll_create1(libc::EPOLL_CLOEXEC), libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))
        };
        let watcher = Watcher {
            epoll: owned(epoll, "epoll")?,
            children: owned(children, "signalfd")?,
            watches: Mutex::new(HashMap::new()),
            next_token: std::sync::atomic::AtomicU64::new(1),
            pauses: AtomicUsize::new(0),
        };
        watcher.register(watcher.children.as_raw_fd(), SIGCHLD_TOKEN)?;
        Ok(watcher)
    }

    fn register(&self, fd: i32, token: u64) -> Outcome<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        // SAFETY: the event is valid during the call.
        match unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(Failure::last("watch", "epoll")),
        }
    }

    fn watches(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Watch>> {
        self.watches.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn pause_reaping(&self) -> ReapingPause<'_> {
        self.pauses.fetch_add(1, Ordering::SeqCst);
        ReapingPause(self)
    }

    /// The end of the process is told as an event with `watch_id`.
    pub fn add(&self, pidfd: OwnedFd, pid: i32, watch_id: u64) -> Outcome<()> {
        let token = self.next_token.fetch_add(1, Ordering::SeqCst);
        let fd = pidfd.as_raw_fd();
        {
            let mut watches = self.watches();
            if watches.len() >= MAX_WATCHES {
                return Err(Failure::of("busy", "watch", "too many processes are watched"));
            }
            watches.insert(token, Watch { pidfd, pid, watch_id });
        }
        self.register(fd, token).inspect_err(|_| {
            self.watches().remove(&token);
        })
    }

    /// Runs for ever.
    pub fn run(&self, emit: impl Fn(Value)) {
        // SAFETY: epoll_event is plain data.
        let mut events: [libc::epoll_event; 64] = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: the array has the length passed.
            let n = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, -1) };
            for event in events.iter().take(n.max(0) as usize) {
                if event.u64 == SIGCHLD_TOKEN {
                    self.drain_signals();
                    self.reap_orphans();
                } else if let Some(watch) = self.watches().remove(&{ event.u64 }) {
                    emit(exit_event(&watch));
                }
            }
        }
    }

    fn drain_signals(&self) {
        let mut buffer = [0u8; 1024];
        // SAFETY: the buffer has the length passed; the descriptor does not block.
        while unsafe { libc::read(self.children.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) } > 0 {}
    }

    fn reap_orphans(&self) {
        if self.pauses.load(Ordering::SeqCst) > 0 {
            return;
        }
        let watches = self.watches();
        for pid in own_children() {
            if !watches.values().any(|w| w.pid == pid) && self.pauses.load(Ordering::SeqCst) == 0 {
                let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(pid), Some(nix::sys::wait::WaitPidFlag::WNOHANG));
            }
        }
    }
}

/// Children of every thread, from /proc/self/task/*/children.
fn own_children() -> Vec<i32> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists = tasks.flatten().filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
    lists.flat_map(|l| l.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<i32>>()).collect()
}

fn exit_event(watch: &Watch) -> Value {
    let mut event = json!({ "event": "exited", "watchId": watch.watch_id, "pid": watch.pid });
    match wait_status(watch).or_else(|| status_of_zombie(watch)).or_else(|| status_by_pidfd(&watch.pidfd)) {
        Some(status) if libc::WIFEXITED(status) => event["code"] = libc::WEXITSTATUS(status).into(),
        Some(status) if libc::WIFSIGNALED(status) => event["signal"] = signal_name(libc::WTERMSIG(status)).into(),
        _ => event["unknown"] = true.into(),
    }
    event
}

/// The wait status of a child of ours, which is reaped; `None` when it is not ours.
fn wait_status(watch: &Watch) -> Option<i32> {
    let mut status = 0;
    // SAFETY: the status is valid for writes. The pidfd was open before, so a child of this pid is the one meant.
    let pid = unsafe { libc::waitpid(watch.pid, &mut status, 0) };
    (pid == watch.pid).then_some(status)
}

/// The status out of /proc of a process that its parent has not reaped yet; the kernel shows it to root.
fn status_of_zombie(watch: &Watch) -> Option<i32> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    let status = parse_zombie_status(&std::fs::read_to_string(format!("/proc/{}/stat", watch.pid)).ok()?)?;
    // SAFETY: signal 0 is only a question: while the pidfd's process is not reaped, its pid is no other's.
    let still_there = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, watch.pidfd.as_raw_fd(), 0, 0, 0) } == 0;
    still_there.then_some(status)
}

/// Field 52 of /proc/PID/stat when field 3 says zombie.
fn parse_zombie_status(stat: &str) -> Option<i32> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    if fields.next()? != "Z" {
        return None;
    }
    fields.nth(48)?.parse().ok()
}

/// PIDFD_GET_INFO with PIDFD_INFO_EXIT of `linux/pidfd.h` (Linux 6.15): told once the parent has reaped the process.
fn status_by_pidfd(pidfd: &OwnedFd) -> Option<i32> {
    #[repr(C)]
    struct PidfdInfo {
        mask: u64,
        cgroup_id: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    const PIDFD_GET_INFO: u64 = 0xC040_FF0B;
    for _ in 0..20 {
        let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, cgroup_id: 0, ids: [0; 11], exit_code: 0 };
        // SAFETY: the structure has the size that the number encodes (64 bytes).
        let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO as _, &mut info) };
        if result == 0 && info.mask & PIDFD_INFO_EXIT != 0 {
            return Some(info.exit_code);
        }
        if result != 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH) {
            return None;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    None
}

fn signal_name(number: i32) -> String {
    nix::sys::signal::Signal::try_from(number).map_or_else(|_| format!("SIG{number}"), |s| s.as_str().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_zombie_has_a_status() {
        let middle = (4..52).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(parse_zombie_status(&format!("7 (a) Z x) Z {middle} 1792")), Some(1792));
        assert_eq!(parse_zombie_status(&format!("7 (a) S {middle} 1792")), None);
        assert_eq!(parse_zombie_status("7 (a) Z 1"), None);
    }

    #[test]
    #[allow(clippy::zombie_processes)] // reaping it is what is tested
    fn an_ended_child_of_somebody_else_is_read() {
        let child = std::process::Command::new("/bin/sh").args(["-c", "exit 7"]).spawn().unwrap();
        let pid = child.id() as i32;
        let watch = Watch { pidfd: crate::identity::open_pidfd(pid).unwrap(), pid, watch_id: 1 };
        let mut poll = libc::pollfd { fd: watch.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd is passed.
        unsafe { libc::poll(&mut poll, 1, 5000) };
        if nix::unistd::geteuid().is_root() {
            assert_eq!(status_of_zombie(&watch).map(|s| libc::WEXITSTATUS(s)), Some(7));
        }
        assert_eq!(exit_event(&watch)["code"], 7);
        assert_eq!(status_of_zombie(&watch), None);
    }
}

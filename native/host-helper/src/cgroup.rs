//! Killing every member of a cgroup. Making, limiting and removing cgroups is plain file work and done by the daemon.
use crate::failure::{Failure, Outcome};
use crate::identity::open_pidfd;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

fn members(dir: &str) -> Outcome<Vec<i32>> {
    match std::fs::read_to_string(format!("{dir}/cgroup.procs")) {
        Ok(text) => Ok(text.lines().filter_map(|l| l.trim().parse().ok()).collect()),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => Ok(Vec::new()),
        Err(e) => Err(Failure::io("cgroup", "read members", &e)),
    }
}

/// Kills the members of `dir` until there are none. cgroup v2 does it at once; on v1 each member gets a pidfd and is
/// looked up again before the signal, so that a recycled pid is never hit.
/// The result is the number of signals sent (0 with `cgroup.kill`).
pub fn kill_all(dir: &str, deadline: Instant) -> Outcome<u32> {
    let _ = std::fs::write(format!("{dir}/cgroup.kill"), "1");
    let mut sent = 0;
    loop {
        let pids = members(dir)?;
        if pids.is_empty() {
            return Ok(sent);
        }
        for pid in pids.into_iter().filter(|p| *p > 0) {
            let Ok(fd) = open_pidfd(pid) else { continue };
            if !members(dir)?.contains(&pid) {
                continue;
            }
            // SAFETY: the descriptor is open; no siginfo is passed.
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), libc::SIGKILL, 0, 0) };
            sent += 1;
        }
        if Instant::now() >= deadline {
            return Err(Failure::of("deadline", "cgroup", format!("members of {dir} do not end")));
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

//! Who a process is: pid, start time, boot and pid namespace. Comparing them after the pidfd was opened makes sure
//! that a recycled pid is never taken for the process that was meant.
use crate::failure::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    pub pid: i32,
    /// Field 22 of /proc/PID/stat.
    pub start_time_ticks: u64,
    pub boot_id: String,
    /// Inode of the pid namespace in which `pid` is counted.
    pub pid_namespace_inode: u64,
}

pub fn boot_id() -> Outcome<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|s| s.trim().to_string()).map_err(|e| Failure::io("identity", "read boot id", &e))
}

pub fn pid_namespace_inode() -> Outcome<u64> {
    std::fs::metadata("/proc/self/ns/pid").map(|m| m.ino()).map_err(|e| Failure::io("identity", "read pid namespace", &e))
}

/// Start time out of a line of /proc/PID/stat: the command name may itself hold spaces and parentheses.
pub fn parse_start_time(stat: &str) -> Option<u64> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

pub fn start_time_ticks(pid: i32) -> Outcome<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Failure::of("stale", "identity", format!("no process {pid}")),
        _ => Failure::io("identity", "read process state", &e),
    })?;
    parse_start_time(&stat).ok_or_else(|| Failure::of("system", "identity", "unreadable process state"))
}

pub fn identify(pid: i32) -> Outcome<Identity> {
    Ok(Identity { pid, start_time_ticks: start_time_ticks(pid)?, boot_id: boot_id()?, pid_namespace_inode: pid_namespace_inode()? })
}

pub fn open_pidfd(pid: i32) -> Outcome<OwnedFd> {
    if pid <= 0 {
        return Err(Failure::invalid("pid must be positive"));
    }
    // SAFETY: no memory is passed; a result of zero or more is a descriptor that nobody else owns.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        let error = Failure::last("pidfd", "open pidfd");
        return Err(if error.errno == libc::ESRCH { Failure::of("stale", "pidfd", format!("no process {pid}")) } else { error });
    }
    // SAFETY: see above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A pidfd of exactly the process meant: opened first, compared after.
pub fn open_verified(identity: &Identity) -> Outcome<OwnedFd> {
    if identity.boot_id != boot_id()? {
        return Err(Failure::of("stale", "identity", "the process belongs to another boot"));
    }
    if identity.pid_namespace_inode != pid_namespace_inode()? {
        return Err(Failure::of("stale", "identity", "the process belongs to another pid namespace"));
    }
    let fd = open_pidfd(identity.pid)?;
    if start_time_ticks(identity.pid)? != identity.start_time_ticks {
        return Err(Failure::of("stale", "identity", format!("pid {} was used again by another process", identity.pid)));
    }
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_read_past_a_hostile_name() {
        let tail = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        assert_eq!(parse_start_time(&format!("77 (a b c {tail}")), None);
        assert_eq!(parse_start_time(&format!("77 (a) 1 2 (x) {tail}")), Some(4242));
        assert_eq!(parse_start_time("77 (short) S 1"), None);
        assert_eq!(parse_start_time(""), None);
    }

    #[test]
    fn a_wrong_start_time_is_stale() {
        let mut me = identify(std::process::id() as i32).unwrap();
        assert!(open_verified(&me).is_ok());
        me.start_time_ticks += 1;
        assert_eq!(open_verified(&me).unwrap_err().kind, "stale");
    }
}

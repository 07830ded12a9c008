//! Limits, ids and capabilities: everything is dropped, and the order matters (bounding set, groups, ids, sets).
use super::spec::Credentials;
use crate::failure::{Failure, Outcome};
use std::collections::BTreeMap;

/// Capability numbers of `linux/capability.h`, in order.
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// Of `linux/keyctl.h`.
const KEYCTL_JOIN_SESSION_KEYRING: libc::c_long = 1;

pub fn set_oom_score(score: Option<i32>, skipped: &mut Vec<String>) -> Outcome<()> {
    let Some(score) = score else { return Ok(()) };
    match std::fs::write("/proc/self/oom_score_adj", score.to_string()) {
        Ok(()) => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
            skipped.push("oomScoreAdj".into());
            Ok(())
        }
        Err(e) => Err(Failure::io("limits", "oom score", &e)),
    }
}

fn resource(name: &str) -> Outcome<nix::sys::resource::Resource> {
    use nix::sys::resource::Resource::*;
    Ok(match name {
        "nofile" => RLIMIT_NOFILE,
        "nproc" => RLIMIT_NPROC,
        "memlock" => RLIMIT_MEMLOCK,
        "core" => RLIMIT_CORE,
        "fsize" => RLIMIT_FSIZE,
        "as" => RLIMIT_AS,
        "stack" => RLIMIT_STACK,
        _ => return Err(Failure::of("invalid", "limits", format!("unknown limit {name}"))),
    })
}

/// Sets soft and hard limits. What only CAP_SYS_RESOURCE may raise stays at the hard limit and is noted.
/// Core files are off unless asked for: they would hold the guest's memory.
pub fn set_limits(limits: &BTreeMap<String, u64>, skipped: &mut Vec<String>) -> Outcome<()> {
    use nix::sys::resource::{getrlimit, setrlimit};
    let mut limits = limits.clone();
    limits.entry("core".into()).or_insert(0);
    for (name, value) in limits {
        let which = resource(&name)?;
        if setrlimit(which, value, value).is_ok() {
            continue;
        }
        let (_, hard) = getrlimit(which).map_err(|e| Failure::nix("limits", &name, e))?;
        let soft = value.min(hard);
        setrlimit(which, soft, hard).map_err(|e| Failure::nix("limits", &name, e))?;
        skipped.push(format!("rlimits.{name}"));
    }
    Ok(())
}

fn capability_mask(names: &[String]) -> Outcome<u64> {
    names.iter().try_fold(0u64, |mask, name| match NAMES.iter().position(|n| n == name) {
        Some(bit) => Ok(mask | 1 << bit),
        None => Err(Failure::of("invalid", "credentials", format!("unknown capability {name}"))),
    })
}

fn prctl(option: i32, a: u64, b: u64) -> Outcome<i32> {
    // SAFETY: the options used here take numbers only.
    match unsafe { libc::prctl(option, a, b, 0, 0) } {
        r if r >= 0 => Ok(r),
        _ => Err(Failure::last("credentials", "prctl")),
    }
}

/// Takes the ids, drops every capability but those named, in every set, and forbids to gain any by exec.
pub fn drop(credentials: Option<&Credentials>, keep: &[String]) -> Outcome<()> {
    let mask = capability_mask(keep)?;
    for bit in 0..64 {
        let present = prctl(libc::PR_CAPBSET_READ, bit, 0);
        if mask & (1 << bit) == 0 && matches!(present, Ok(1)) {
            // Without CAP_SETPCAP the bounding set stays; then nothing above it is held either.
            let _ = prctl(libc::PR_CAPBSET_DROP, bit, 0);
        }
    }
    let _ = prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as u64, 0);
    if mask != 0 {
        prctl(libc::PR_SET_KEEPCAPS, 1, 0)?;
    }
    if let Some(ids) = credentials {
        set_ids(ids)?;
    }
    set_capabilities(mask)?;
    for bit in (0..64).filter(|bit| mask & (1 << bit) != 0) {
        prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE as u64, bit)?;
    }
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0)?;
    prctl(libc::PR_SET_DUMPABLE, 0, 0)?;
    Ok(())
}

/// What no other step covers: new files are the process's alone, the daemon's keys are out of reach, and where the
/// kernel has it (Linux 6.12) Landlock keeps the process from abstract sockets and signals of anybody but its own.
pub fn confine() {
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    // SAFETY: joining a new, unnamed session keyring takes no memory.
    unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0usize) };
    use landlock::{ABI, Access, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope};
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort).scope(Scope::from_all(ABI::V6));
    // Older kernels lack it: the other walls stand without.
    let _ = ruleset.and_then(|r| r.create()).and_then(|r| r.restrict_self());
}

fn set_ids(ids: &Credentials) -> Outcome<()> {
    use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
    let groups: Vec<Gid> = ids.groups.iter().map(|g| Gid::from_raw(*g)).collect();
    let (uid, gid) = (Uid::from_raw(ids.uid), Gid::from_raw(ids.gid));
    setgroups(&groups).map_err(|e| Failure::nix("credentials", "set groups", e))?;
    setresgid(gid, gid, gid).map_err(|e| Failure::nix("credentials", "set gid", e))?;
    setresuid(uid, uid, uid).map_err(|e| Failure::nix("credentials", "set uid", e))
}

fn set_capabilities(mask: u64) -> Outcome<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let part = |m: u32| Data { effective: m, permitted: m, inheritable: m };
    let header = Header { version: 0x2008_0522, pid: 0 };
    let data = [part(mask as u32), part((mask >> 32) as u32)];
    // SAFETY: version 3 of the interface takes exactly this header and two data records (capset(2)).
    match unsafe { libc::syscall(libc::SYS_capset, &header, data.as_ptr()) } {
        0 => Ok(()),
        _ => Err(Failure::last("credentials", "set capabilities")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_names_map_to_their_numbers() {
        assert_eq!(capability_mask(&["CHOWN".into(), "SYS_ADMIN".into()]).unwrap(), 1 | 1 << 21);
        assert_eq!(capability_mask(&["CHECKPOINT_RESTORE".into()]).unwrap(), 1 << 40);
        assert_eq!(capability_mask(&["CAP_CHOWN".into()]).unwrap_err().kind, "invalid");
    }
}

//! Landlock and seccomp: a child restricts itself and then tries what it gave up.
use super::namespaces::in_child;
use super::{Fault, Verdict, fault, works, works_with};
use landlock::{ABI, Access, AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use serde_json::json;
use std::collections::BTreeMap;

/// `LANDLOCK_CREATE_RULESET_VERSION` of `linux/landlock.h`.
const VERSION_FLAG: u32 = 1;

fn broken(error: impl std::fmt::Display) -> Fault {
    Fault::Broken(error.to_string())
}

pub fn landlock() -> Verdict {
    // SAFETY: with the version flag the structure is absent and its size zero.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, VERSION_FLAG) };
    if abi < 0 {
        return Err(match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EOPNOTSUPP) => Fault::Missing("built in, not in the list of active security modules".into()),
            _ => fault("ask for the ABI"),
        });
    }
    in_child(restrict_and_try)?;
    works_with(format!("ABI {abi}, a child restricted itself"), json!({ "abi": abi }))
}

fn restrict_and_try() -> Result<(), Fault> {
    let open = PathFd::new("/proc").map_err(broken)?;
    let rules = AccessFs::from_all(ABI::V1);
    let status = Ruleset::default()
        .handle_access(rules)
        .and_then(|r| r.create())
        .and_then(|r| r.add_rule(PathBeneath::new(open, AccessFs::from_read(ABI::V1))))
        .and_then(|r| r.restrict_self())
        .map_err(broken)?;
    if status.ruleset == landlock::RulesetStatus::NotEnforced {
        return Err(Fault::Broken("the ruleset was not enforced".into()));
    }
    std::fs::read_to_string("/proc/uptime").map_err(|e| broken(format!("what is allowed is refused: {e}")))?;
    match std::fs::read_dir("/") {
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
        Err(e) => Err(broken(e)),
        Ok(_) => Err(Fault::Broken("what is forbidden still works".into())),
    }
}

pub fn seccomp() -> Verdict {
    in_child(filter_and_try)?;
    works("a child filtered itself")
}

fn filter_and_try() -> Result<(), Fault> {
    let arch = std::env::consts::ARCH.try_into().map_err(|_| Fault::Missing("not on this architecture".into()))?;
    let rules = BTreeMap::from([(libc::SYS_getppid, Vec::new())]);
    let refuse = SeccompAction::Errno(libc::EXDEV as u32);
    let program: BpfProgram = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).and_then(TryInto::try_into).map_err(broken)?;
    seccompiler::apply_filter(&program).map_err(|e| match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::EINVAL | libc::ENOSYS) => Fault::Missing(e.to_string()),
        _ => broken(e),
    })?;
    // SAFETY: getppid takes nothing.
    let result = unsafe { libc::syscall(libc::SYS_getppid) };
    match (result, std::io::Error::last_os_error().raw_os_error()) {
        (-1, Some(libc::EXDEV)) => Ok(()),
        _ => Err(Fault::Broken("the filter was taken, yet the call passed".into())),
    }
}
